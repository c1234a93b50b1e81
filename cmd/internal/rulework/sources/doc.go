// Package sources reads rule files for commands, including pipes.
package sources
