// Package stores opens the store that a configuration names. It is the only one that names every store.
package stores
