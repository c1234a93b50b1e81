package plainfile

import (
	"errors"
	"fmt"
	"io/fs"
)

// Reason returns a text that explains why a file or directory cannot be used, without its path.
func Reason(err error) string {
	var in *fs.PathError
	switch {
	case errors.As(err, &in) && in.Op == opWrite:
		return in.Err.Error()
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file or directory"
	case errors.Is(err, fs.ErrPermission):
		return "cannot be read: permission denied"
	case in != nil:
		return fmt.Sprintf("cannot be read: %v", in.Err)
	}
	return fmt.Sprintf("cannot be read: %v", err)
}

// Explain returns the error of a path that cannot be used, with the path and [Reason] as its text. Other errors, such as the end
// of a context, are returned unchanged. The functions of this package return such errors.
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
