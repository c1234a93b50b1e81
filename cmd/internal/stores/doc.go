// Package stores opens the configured store. It is the only package that imports every store.
package stores
