// Package panics turns a panic in code that parses or compiles input into an error, so that an input file can be
// rejected without ending the process.
package panics

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// Error is a recovered panic. It is always a bug of the program, whatever the input was.
type Error struct {
	Value any    // value passed to panic
	Stack []byte // stack of the goroutine that panicked
}

func (e *Error) Error() string {
	return fmt.Sprintf("internal error: %v: this is a bug of Sluice: please report it with the file and the logged stack", e.Value)
}

var recovered atomic.Uint64

// Recovered returns the number of panics that [Recover] has recovered in this process. Tests use it to detect panics
// that errors hide.
func Recovered() uint64 { return recovered.Load() }

// Recover is deferred. If the function that deferred it panics, Recover stops the panic and calls failed with it.
func Recover(failed func(*Error)) {
	if p := recover(); p != nil {
		recovered.Add(1)
		failed(&Error{Value: p, Stack: debug.Stack()})
	}
}

// LogArgs returns the arguments of a log line about an error: the stack if the error is a panic, else none.
func LogArgs(err error) []any {
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	return []any{"stack", string(e.Stack)}
}
