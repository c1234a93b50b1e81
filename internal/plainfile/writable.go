package plainfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// CheckCreate returns the error that opening the file for writing would return. It does not create the file.
func CheckCreate(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return checkDirectory(path, filepath.Dir(path))
	}
	if err == nil {
		err = writable(path)
	}
	return ExplainWrite(path, err)
}

// CheckReplace returns the error that creating a temporary file in the directory of path would return. It creates
// nothing.
func CheckReplace(path string) error {
	return checkDirectory(path, filepath.Dir(path))
}

// Mkdir creates a directory with its parents, as [os.MkdirAll] does.
func Mkdir(path string, perm fs.FileMode) error {
	if err := checkLinks(path); err != nil {
		return err
	}
	return ExplainWrite(path, os.MkdirAll(path, perm))
}

// checkLinks returns an error if the path, or a parent of it, is a dangling symbolic link, which os.MkdirAll reports as
// an existing file.
func checkLinks(path string) error {
	for at := filepath.Clean(path); at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if to, err := os.Readlink(at); err == nil {
			return Explain(at, &fs.PathError{Op: opWrite, Path: at, Err: fmt.Errorf("is a symbolic link to %s, which does not exist: create that directory, or remove the link", to)})
		}
	}
	return nil
}

// CheckMkdir returns the error that creating the directory with its parents, or a file in it if it exists, would
// return. It creates nothing.
func CheckMkdir(path string) error {
	if err := checkLinks(path); err != nil {
		return err
	}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return checkDirectory(path, at)
		}
	}
}

func checkDirectory(path, directory string) error {
	info, err := os.Stat(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("there is no directory %s%w", directory, silent{fs.ErrNotExist})
	case err == nil && !info.IsDir():
		err = syscall.ENOTDIR
	case err == nil:
		err = writable(directory)
	}
	return ExplainWrite(path, err)
}

// silent is a cause without a text.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// opWrite is the operation of errors about writing.
const opWrite = "write"

// ExplainWrite returns the error of a path that cannot be written, with the path and the reason as its text.
func ExplainWrite(path string, err error) error {
	if err == nil {
		return nil
	}
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("permission denied%w", silent{err})
	case errors.Is(err, syscall.ENOTDIR):
		err = fmt.Errorf("a directory of the path is a file%w", silent{err})
	}
	return Explain(path, &fs.PathError{Op: opWrite, Path: path, Err: fmt.Errorf("cannot be written: %w", err)})
}
