package recommend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/rulefile"
)

// Write adds the rule in shadow mode, and its test, to a directory of rule files. It overwrites no file, and a server that
// watches the directory never reads a part of one. The rules are compiled together with those of the directory before and
// after; if that fails, nothing is left behind.
func (r *Report) Write(ctx context.Context, dir string) error {
	rule, test, err := r.files(ctx, true, true)
	if err != nil {
		return err
	}
	if err := r.fits(dir, rule); err != nil {
		if rule, test, err = r.files(ctx, true, false); err == nil { // the directory may already say which proxies are trusted
			err = r.fits(dir, rule)
		}
		if err != nil {
			return fmt.Errorf("--write: %w", err)
		}
	}
	files := []struct{ name, text string }{
		{filepath.Join(dir, r.Name+"_test.yaml"), test}, // first: the rule may be live as soon as it is there
		{filepath.Join(dir, r.Name+".yaml"), rule},
	}
	var written []string
	undo := func(err error) error {
		for _, name := range written {
			err = errors.Join(err, os.Remove(name))
		}
		return fmt.Errorf("--write: %w", err)
	}
	for _, f := range files {
		if err := create(f.name, f.text); err != nil {
			return undo(err)
		}
		written = append(written, f.name)
	}
	if err := works(ctx, dir, files[0].name); err != nil {
		return undo(err)
	}
	r.Written = written
	return nil
}

// fits compiles the rules of the directory alone and together with the new one.
func (r *Report) fits(dir, rule string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: there is no such directory: create it first", dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s: is not a directory: write the directory of the rule files", dir)
	}
	var there []rulefile.File
	if hasRules(dir) {
		if there, err = rulefile.ReadFiles(dir); err != nil {
			return err
		}
	}
	if len(there) > 0 {
		if _, err := rulefile.LoadFiles(rulefile.Options{}, there...); err != nil {
			return fmt.Errorf("the rules of %s have errors, correct them first: %w", dir, err)
		}
	}
	_, err = rulefile.LoadFiles(rulefile.Options{}, append(there, rulefile.File{Name: filepath.Join(dir, r.Name+".yaml"), Data: []byte(rule)})...)
	if err != nil {
		return fmt.Errorf("the rule does not fit the others, try another --name: %w", err)
	}
	return nil
}

// hasRules reports whether the directory contains rule files. Reading one without any is an error.
func hasRules(dir string) bool {
	entries, _ := os.ReadDir(dir) // an error is that of the next read, too
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		base, ok := strings.CutSuffix(e.Name(), filepath.Ext(e.Name()))
		ext := filepath.Ext(e.Name())
		return ok && (ext == ".yaml" || ext == ".yml") && !strings.HasSuffix(base, "_test")
	})
}

// create writes a new file. It appears under its name when it is complete; an existing file is an error.
func create(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".sluice-recommend-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // its other name, after the link
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), name); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: the file exists already: write another --name, or remove it", name)
	} else if err != nil {
		return err
	}
	return nil
}

// works loads the directory again and runs the new test.
func works(ctx context.Context, dir, test string) error {
	if _, err := rulefile.Load(rulefile.Options{}, dir); err != nil {
		return err
	}
	files, err := ruletest.Load(rulefile.Options{}, test)
	if err != nil {
		return err
	}
	for _, f := range files {
		results, err := f.Run(ctx, func(string) bool { return true })
		if err != nil {
			return err
		}
		for i := range results {
			if !results[i].Passed() {
				return fmt.Errorf("%s fails with the rules of %s", test, dir)
			}
		}
	}
	return nil
}
