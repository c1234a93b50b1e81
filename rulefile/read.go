package rulefile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// Bounds of what is read: 1 MiB in a file, 16 MiB in all.
const (
	MaxFileBytes  = strictyaml.MaxBytes
	MaxTotalBytes = 16 << 20
	MaxFiles      = 1000
)

// File is a file: its name as errors show it, and its content.
type File struct {
	Name string
	Data []byte
}

// ReadFiles reads files, and the rule files of directories: those named *.yaml and *.yml, in the order of their names. Of a
// directory it leaves out what begins with a dot, *_test.yaml and *_test.yml, which hold tests, and sub-directories.
// Links are followed.
func ReadFiles(paths ...string) ([]File, error) {
	r := reader{seen: make(map[string]bool)}
	if len(paths) == 0 {
		return nil, &rules.Error{Msg: "there are no rule files to read: name a file or a directory"}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			r.fail(path, err)
		case info.IsDir():
			r.directory(path)
		default:
			r.file(path)
		}
	}
	return r.files, errors.Join(r.faults...)
}

type reader struct {
	files  []File
	seen   map[string]bool
	bytes  int
	faults []error
}

func (r *reader) fault(path, format string, args ...any) {
	r.faults = append(r.faults, &rules.Error{Pos: rules.Position{File: path}, Msg: fmt.Sprintf(format, args...)})
}

// fail reports an error of the system in words, without the path that stands in front anyway.
func (r *reader) fail(path string, err error) {
	var in *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.fault(path, "there is no such file or directory")
	case errors.Is(err, fs.ErrPermission):
		r.fault(path, "cannot be read: permission denied")
	case errors.As(err, &in):
		r.fault(path, "cannot be read: %v", in.Err)
	default:
		r.fault(path, "cannot be read: %v", err)
	}
}

func (r *reader) directory(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		r.fail(path, err)
		return
	}
	found := false
	for _, entry := range entries { // in the order of their names
		if !isRuleFile(entry.Name()) {
			continue
		}
		name := filepath.Join(path, entry.Name())
		info, err := os.Stat(name) // of what a link points to
		switch {
		case err != nil:
			r.fail(name, err)
		case info.IsDir():
			continue
		case !info.Mode().IsRegular():
			r.fault(name, "is not a regular file: remove it, or rename it")
		default:
			r.file(name)
		}
		found = true
	}
	if !found {
		r.fault(path, "there are no rule files in this directory: they are named *.yaml or *.yml")
	}
}

// isRuleFile tells by its name whether a file of a directory holds rules.
func isRuleFile(name string) bool {
	base, yaml := strings.CutSuffix(name, ".yaml")
	if !yaml {
		base, yaml = strings.CutSuffix(name, ".yml")
	}
	return yaml && !strings.HasPrefix(name, ".") && !strings.HasSuffix(base, "_test")
}

func (r *reader) file(path string) {
	if clean := filepath.Clean(path); r.seen[clean] {
		return // named twice, or also in a directory that was named
	} else if r.seen[clean] = true; len(r.seen) > MaxFiles {
		if len(r.seen) == MaxFiles+1 {
			bounds.RuleFiles.Reached()
			r.fault(path, "there are more than %d files: put more rules into each", MaxFiles)
		}
		return
	}
	data, err := plainfile.Read(path, MaxFileBytes)
	before := r.bytes
	r.bytes += len(data)
	switch {
	case errors.Is(err, plainfile.ErrTooLarge):
		bounds.RuleFiles.Reached()
		r.fault(path, "the file has more than %d bytes: split it", MaxFileBytes)
	case err != nil:
		r.fail(path, err)
	case r.bytes > MaxTotalBytes && before <= MaxTotalBytes:
		bounds.RuleFiles.Reached()
		r.fault(path, "with this file there are more than %d bytes in all: use fewer rules", MaxTotalBytes)
	case r.bytes <= MaxTotalBytes:
		r.files = append(r.files, File{Name: path, Data: data})
	}
}

// digest is short and the same for the same files wherever their directory is, so that processes can be compared.
func digest(sources []File) string {
	h := sha256.New()
	part := func(b []byte) {
		_ = binary.Write(h, binary.BigEndian, uint64(len(b))) // a hash never fails
		h.Write(b)
	}
	for _, s := range sources {
		part([]byte(filepath.Base(s.Name)))
		part(s.Data)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
