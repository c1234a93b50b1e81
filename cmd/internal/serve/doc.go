// Package serve is the service of `sluice serve`: it opens what a configuration names, joins it, and runs it until it is to
// end. Tests start it in this process.
package serve
