package plainfile

import (
	"errors"
	"fmt"
	"io/fs"
)

// Reason returns a text that explains why a file or directory cannot be read, without its path.
func Reason(err error) string {
	var in *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file or directory"
	case errors.Is(err, fs.ErrPermission):
		return "cannot be read: permission denied"
	case errors.As(err, &in):
		return fmt.Sprintf("cannot be read: %v", in.Err)
	}
	return fmt.Sprintf("cannot be read: %v", err)
}

// Explain returns the error of a path that cannot be read, with [Reason] as its text. Other errors, such as the end of
// a context, are returned unchanged.
func Explain(path string, err error) error {
	var in *fs.PathError
	if !errors.As(err, &in) {
		return err
	}
	return &explained{path + ": " + Reason(err), err}
}

type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }
