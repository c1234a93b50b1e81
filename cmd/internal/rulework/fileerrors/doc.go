// Package fileerrors reports errors and warnings in files that users write, each with its position and the line.
package fileerrors
