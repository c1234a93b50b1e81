// Package match has what requests are matched by: paths and hosts in their one canonical form, patterns of paths, sets of
// addresses, and tables that find the few patterns that a path fits.
package match
