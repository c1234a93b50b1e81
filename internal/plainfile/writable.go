package plainfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// CheckCreate returns the error that opening the file for writing would return, and does not create it.
func CheckCreate(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return checkDirectory("open", path, filepath.Dir(path))
	}
	if err == nil {
		err = writable(path)
	}
	return asPathError("open", path, err)
}

// CheckMkdir returns the error that creating the directory with its parents, or a file in it if it exists, would return, and
// creates nothing.
func CheckMkdir(path string) error {
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return checkDirectory("mkdir", path, at)
		}
	}
}

func checkDirectory(op, path, directory string) error {
	info, err := os.Stat(directory)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = writable(directory)
	}
	return asPathError(op, path, err)
}

func asPathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
