package main

import (
	"errors"
	"time"
)

// Exit codes.
const (
	exitFine     = 0
	exitFindings = 1 // the command did its work and found something
	exitWrong    = 2 // wrong use, or input that cannot be read
)

// outputTimeout is how long the end of a service waits for the reader of its output.
const outputTimeout = time.Second

// errFindings ends a command that has found and printed something.
var errFindings = errors.New("there are findings")
