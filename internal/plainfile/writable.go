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
		return checkDirectory("open", path, filepath.Dir(path))
	}
	if err == nil {
		err = writable(path)
	}
	return asPathError("open", path, err)
}

// CheckReplace returns the error that creating a temporary file in the directory of path would return. It creates
// nothing.
func CheckReplace(path string) error {
	return checkDirectory("open", path, filepath.Dir(path))
}

// Mkdir creates a directory with its parents, as [os.MkdirAll] does.
func Mkdir(path string, perm fs.FileMode) error {
	if err := checkLinks(path); err != nil {
		return err
	}
	return os.MkdirAll(path, perm)
}

// checkLinks returns an error if the path, or a parent of it, is a dangling symbolic link, which os.MkdirAll reports as
// an existing file.
func checkLinks(path string) error {
	for at := filepath.Clean(path); at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if to, err := os.Readlink(at); err == nil {
			return &fs.PathError{Op: "mkdir", Path: at, Err: fmt.Errorf("is a symbolic link to %s, which does not exist: create that directory, or remove the link", to)}
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
