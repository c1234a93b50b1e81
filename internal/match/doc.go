// Package match matches requests: it brings paths and hosts into canonical form, and contains path patterns, sets of
// addresses and tables that find the patterns matching a path.
package match
