// Package term is how the command line talks to people at a terminal, and to programs that read what it prints.
package term
