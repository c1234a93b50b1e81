// Package admincli is what commands that ask a running service have beside their flags: requests as they are written on a
// command line become messages of its APIs, and the answers become text.
package admincli
