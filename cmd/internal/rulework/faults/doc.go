// Package faults tells people what is wrong with the files that they wrote: each fault with its place and its line.
package faults
