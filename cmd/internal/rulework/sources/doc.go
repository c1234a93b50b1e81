// Package sources reads rule files for commands, which may be given pipes too.
package sources
