// Package term formats the output of the command line as text for terminals and as JSON, and defines its common flags and exit codes.
package term
