// Package serve is the service of `sluice serve`. It opens the store, rules, queue and listeners of a configuration and runs them
// until shutdown. Tests run it in their own process.
package serve
