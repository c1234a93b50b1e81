package term

import (
	"errors"
	"time"
)

// Exit codes.
const (
	ExitFine     = 0
	ExitFindings = 1 // the command succeeded and has findings, such as errors in a file or a denied request
	ExitWrong    = 2 // wrong usage, unreadable input or an unreachable service
)

// OutputTimeout is the maximum time that a stopping service waits for the reader of its output.
const OutputTimeout = time.Second

// ErrFindings is returned by commands that have printed findings. The exit code is then ExitFindings.
var ErrFindings = errors.New("findings were printed")
