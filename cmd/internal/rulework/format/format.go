// Package format writes rule files and test files in the standard layout, for sluice fmt.
package format

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/rulefile"
)

// Options selects the action for a file in another layout. Without any, the result is printed.
type Options struct {
	Write bool // write the result to the file
	List  bool // print its name
	Check bool // print its name, for checks
}

// maxInput is the maximum number of bytes read from standard input; no rule file is larger.
const maxInput = 1 << 20

// Input formats a file read from in.
func Input(in io.Reader, out io.Writer) error {
	src, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return err
	}
	if len(src) > maxInput {
		return fmt.Errorf("standard input is larger than %d bytes", maxInput)
	}
	formatted, err := rulefile.Format("standard input", src)
	if err != nil {
		return err
	}
	_, err = out.Write(formatted)
	return err
}

// Files formats files, and those of directories. different is true if the layout of any was not standard.
func (o Options) Files(ctx context.Context, out io.Writer, paths []string) (different bool, err error) {
	names, missing := yamlFiles(paths)
	faults := []error{missing} // files with errors are left unchanged; the others are formatted
	for _, name := range names {
		changed, err := o.file(ctx, out, name)
		different = different || changed
		faults = append(faults, err)
	}
	return different, errors.Join(faults...)
}

// file formats one file. changed is true if its layout was not standard.
func (o Options) file(ctx context.Context, out io.Writer, name string) (changed bool, err error) {
	src, err := plainfile.ReadStream(ctx, name, maxInput)
	if err != nil {
		return false, plainfile.Explain(name, err)
	}
	formatted, err := rulefile.Format(name, src)
	if err != nil {
		return false, err
	}
	changed = !bytes.Equal(src, formatted)
	if changed && (o.List || o.Check) {
		fmt.Fprintln(out, term.Printable(name))
	}
	if changed && o.Write {
		return true, plainfile.Replace(name, formatted)
	}
	if !o.List && !o.Check && !o.Write {
		_, err = out.Write(formatted)
	}
	return changed, err
}

// yamlFiles returns the YAML files of directories, tests included, and files as they are.
func yamlFiles(paths []string) ([]string, error) {
	var names []string
	var missing []error
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			missing = append(missing, plainfile.Explain(path, err))
			continue
		}
		if !info.IsDir() {
			names = append(names, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			missing = append(missing, plainfile.Explain(path, err))
			continue
		}
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if !e.IsDir() && e.Name()[0] != '.' && (ext == ".yaml" || ext == ".yml") {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
	}
	return names, errors.Join(missing...)
}
