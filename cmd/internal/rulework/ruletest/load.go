package ruletest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// ErrNone is wrapped when there are no tests in the given paths.
var ErrNone = errors.New("there are no tests")

// Load reads test files and the rules that they test. In a directory it reads *_test.yaml and *_test.yml, in the order
// of their names, without subdirectories. It returns all errors at once, joined; those in files are [*rules.Error].
func Load(o rulefile.Options, paths ...string) ([]*File, error) {
	names, err := find(paths)
	if err != nil {
		return nil, err
	}
	l := loader{options: o, sets: make(map[string]*rules.Set)}
	var files []*File
	for _, name := range names {
		f, err := l.load(name)
		if err != nil {
			l.faults = append(l.faults, err)
			continue
		}
		files = append(files, f)
	}
	return files, errors.Join(l.faults...)
}

// find returns the test files.
func find(paths []string) ([]string, error) {
	var names []string
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%s: there is no such file or directory", path)
		case err != nil:
			return nil, err
		}
		if !info.IsDir() {
			names = append(names, path)
			continue
		}
		entries, err := os.ReadDir(path) // in the order of names
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() && isTestName(e.Name()) {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w in %s: write tests in files named *_test.yaml next to the rule files",
			ErrNone, strings.Join(paths, ", "))
	}
	return names, nil
}

func isTestName(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, "_test.yaml") || strings.HasSuffix(name, "_test.yml"))
}

type loader struct {
	options rulefile.Options
	sets    map[string]*rules.Set // by paths; nil: they have errors, which are already reported
	faults  []error
}

func (l *loader) load(name string) (*File, error) {
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	f, err := Parse(name, data)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(name)
	paths := []string{dir}
	if len(f.Rules) > 0 {
		paths = nil
	}
	var faults []error
	for _, r := range f.Rules {
		path := filepath.FromSlash(r.Path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if _, err := os.Stat(path); err != nil {
			msg := fmt.Sprintf("rules: %s cannot be read: %v", r.Path, errors.Unwrap(err))
			faults = append(faults, &rules.Error{Pos: r.At, Msg: msg})
		}
		paths = append(paths, path)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if f.Set, err = l.set(paths); f.Set == nil {
		return nil, err
	}
	return f, f.checkNames()
}

// set compiles rules, each selection of paths once. It returns the errors of a selection only once.
func (l *loader) set(paths []string) (*rules.Set, error) {
	key := strings.Join(paths, "\x00")
	if set, known := l.sets[key]; known {
		return set, nil
	}
	l.sets[key] = nil
	loaded, err := rulefile.Load(l.options, paths...)
	if err != nil {
		return nil, err
	}
	l.sets[key] = loaded.Set
	return loaded.Set, nil
}

// read reads a file of limited size.
func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is not a regular file")}
	case info.Size() > strictyaml.MaxBytes:
		msg := fmt.Sprintf("the file has %d bytes, at most %d are read: split it", info.Size(), strictyaml.MaxBytes)
		return nil, &rules.Error{Pos: rules.Position{File: name}, Msg: msg}
	}
	return plainfile.Read(name, strictyaml.MaxBytes)
}

// checkNames reports unknown names of rules. An expectation about one would fail without giving the reason.
func (f *File) checkNames() error {
	names := ruleNames(f.Set)
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[name] = true
	}
	var faults []error
	check := func(at rules.Position, field, name string) {
		if known[name] {
			return
		}
		msg := fmt.Sprintf("%s: there is no rule %s", field, strictyaml.Quote(name))
		if best := suggest.Closest(name, names); best != "" {
			msg += fmt.Sprintf(": did you mean %q?", best)
		}
		faults = append(faults, &rules.Error{Pos: at, Msg: msg})
	}
	for i := range f.Tests {
		for j := range f.Tests[i].Requests {
			e := &f.Tests[i].Requests[j].Expect
			if e.Rule != nil {
				check(e.Rule.At, "rule", e.Rule.Text)
			}
			if e.Shadow != nil {
				check(e.Shadow.At, "shadow", e.Shadow.Text)
			}
			if e.Remaining != nil {
				for _, each := range e.Remaining.ByRule {
					check(each.At, "remaining", each.Rule)
				}
			}
		}
	}
	return errors.Join(faults...)
}

// ruleNames returns the possible names of the limits of a set: a rule, or one limit of it.
func ruleNames(set *rules.Set) []string {
	var names []string
	cfg := set.Config()
	for i := range cfg.Rules {
		r := &cfg.Rules[i]
		names = append(names, r.Name)
		most := r.Limits
		if r.Tiers != nil {
			for _, limits := range r.Tiers.Limits {
				if len(limits) > len(most) {
					most = limits
				}
			}
		}
		for j := range r.Overrides {
			if limits := r.Overrides[j].Limits; len(limits) > len(most) {
				most = limits
			}
		}
		for j := range most {
			names = append(names, fmt.Sprintf("%s#%d", r.Name, j+1), r.Name+"#"+most[j].Name)
		}
	}
	for i := range cfg.Domains {
		for _, l := range set.DescriptorLimits(cfg.Domains[i].Name) {
			if l.Name != "" {
				names = append(names, l.Name)
			}
			for _, r := range l.Rules {
				names = append(names, r.Name)
			}
		}
	}
	return names
}
