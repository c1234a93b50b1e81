// Package describe says in words what rules limit: to who writes them, in a line for each, and to the developers who use an
// API, in the page that `sluice limits` writes.
package describe
