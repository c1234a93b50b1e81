package term

import (
	"errors"
	"time"
)

// Exit codes.
const (
	ExitFine     = 0
	ExitFindings = 1 // the command did its work and found something
	ExitWrong    = 2 // wrong use, or input that cannot be read
)

// OutputTimeout is how long the end of a service waits for the reader of its output.
const OutputTimeout = time.Second

// ErrFindings ends a command that has found and printed something.
var ErrFindings = errors.New("there are findings")
