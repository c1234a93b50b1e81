// Package doctest tests the documentation: it runs the programs and commands, and reads the files, that README and docs show.
package doctest
