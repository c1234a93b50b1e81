// Package describe describes rules in words: for their authors in one line each, and for the users of an API in the
// page of `sluice limits`.
package describe
