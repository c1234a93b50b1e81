package envoyratelimit

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// files loads the rule files and reloads them when they change.
type files struct {
	settings RuleSettings
	dir      string
	use      func(*rules.Set) error
	loaded   func(*rules.Set) // called with rules that are in use
	failed   func(error)
	log      *slog.Logger

	sound      map[string][]byte // content of files that were read before, all of whose documents have a domain
	found      bool              // the directory existed
	sayMissing sync.Once
}

func newFiles(s RuleSettings, use func(*rules.Set) error, loaded func(*rules.Set), failed func(error), log *slog.Logger) *files {
	return &files{
		settings: s, dir: filepath.Join(s.Root, s.Below, s.App), use: use, loaded: loaded, failed: failed, log: log,
		sound: make(map[string][]byte),
	}
}

// fileRetry is the interval at which unreadable files are retried during the start.
const fileRetry = time.Second

// run loads the rules, calls tried after the first attempt, and then reloads changed files until ctx is done.
func (f *files) run(ctx context.Context, tried func()) {
	var last string
	for {
		w, err := rulefile.NewWatcher(rulefile.WatchConfig{
			Paths: []string{f.dir}, Options: rulefile.Options{MergeDomains: f.settings.Merge}, Read: f.readAll, ReloadOnSIGHUP: true,
			OnReload: func(l *rulefile.LoadResult) { f.adopt(l.Set) }, OnError: f.failed,
			OnRecovered: func(l *rulefile.LoadResult) { f.adopt(l.Set) },
		})
		if err == nil {
			f.adopt(w.Set())
			tried()
			_ = w.Run(ctx) // always nil
			return
		}
		if text := err.Error(); text != last { // not on every retry
			last = text
			f.failed(err)
		}
		tried()
		select {
		case <-ctx.Done():
			return
		case <-time.After(fileRetry):
		}
	}
}

func (f *files) adopt(set *rules.Set) {
	if err := f.use(set); err != nil {
		f.failed(err)
	} else if f.found { // otherwise the missing directory was logged
		f.loaded(set)
	}
}

// noRules is added to the files, because the reference accepts files without limits and a directory without files.
var noRules = rulefile.File{Name: "no rules", Data: []byte("rules: []\n")}

func (f *files) readAll(paths ...string) ([]rulefile.File, error) {
	sources, err := f.read(paths...)
	return append(sources, noRules), err
}

var domainLine = regexp.MustCompile(`(?m)^["']?domain["']?[ \t]*:`)

// read reads the files, and reports documents without a domain.
func (f *files) read(paths ...string) ([]rulefile.File, error) {
	kept, err := f.list(paths...)
	if err != nil {
		return nil, err
	}
	return kept, f.domains(kept)
}

// list reads all files of the directory and its subdirectories, as the reference does, but in the order of their names. It
// skips files of Kubernetes, whose names begin with two dots, and tests of rules, whose names end with _test.yaml.
func (f *files) list(paths ...string) ([]rulefile.File, error) {
	var names []string
	for _, dir := range paths {
		root, err := filepath.EvalSymlinks(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !f.found: // later it is an error, so that removing the directory does not remove the limits
			f.sayMissing.Do(func() { f.log.Error("rule directory not found: nothing is limited", "directory", dir) })
			return nil, nil
		case err != nil:
			return nil, err
		}
		f.found = true
		err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			hidden := strings.HasPrefix(entry.Name(), ".") && path != root
			switch {
			case err != nil:
				return err
			case hidden && (f.settings.SkipDotFiles || strings.HasPrefix(entry.Name(), "..")):
				if entry.IsDir() {
					return fs.SkipDir
				}
			case !entry.IsDir():
				names = append(names, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	sources, err := rulefile.ReadFiles(names...)
	if err != nil {
		return nil, err
	}
	kept := sources[:0]
	for _, s := range sources {
		base := strings.TrimSuffix(strings.TrimSuffix(s.Name, ".yaml"), ".yml")
		if !strings.HasSuffix(base, "_test") || domainLine.Match(s.Data) {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

// domains returns an error for documents without a domain, as the reference does: this service does not support rules in
// Sluice's format.
func (f *files) domains(sources []rulefile.File) error {
	var faults []error
	before := f.sound
	f.sound = make(map[string][]byte, len(sources))
	for _, s := range sources {
		if data, ok := before[s.Name]; ok && bytes.Equal(data, s.Data) {
			f.sound[s.Name] = s.Data
			continue
		}
		without, rest, unknown := withoutDomain(s)
		if len(without) == 0 && !unknown { // other errors are reported when all files are loaded
			f.sound[s.Name] = s.Data
			continue
		}
		faults = append(faults, without...)
		if len(bytes.TrimSpace(rest.Data)) > 0 {
			_, err := rulefile.Parse(rulefile.Options{}, rest)
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// withoutDomain returns an error for each document of a file that has content and no domain, or one for a file without
// content. rest is the file without those documents, in which the others keep their positions. unknown reports whether an
// invalid YAML document may have a domain.
func withoutDomain(s rulefile.File) (faults []error, rest rulefile.File, unknown bool) {
	const msg = "config file cannot have empty domain: write domain: and a name at its top"
	empty := true
	lines := bytes.SplitAfter(s.Data, []byte("\n"))
	for _, d := range strictyaml.ParseAll(s.Data) {
		switch n := d.Root; {
		case n == nil:
			empty = false
			unknown = unknown || !domainLine.Match(d.Data)
		case n.Kind == strictyaml.Null && len(d.Faults) == 0:
		case n.Field("domain") != nil || n.MayLose("domain"):
			empty = false
		default:
			empty = false
			faults = append(faults, &rules.Error{Pos: rules.Position{File: s.Name, Line: n.Line, Column: n.Column}, Msg: msg})
			for i := range bytes.Count(bytes.TrimSuffix(d.Data, []byte("\n")), []byte("\n")) + 1 {
				lines[d.Line-1+i] = []byte("\n")
			}
		}
	}
	if empty {
		faults = append(faults, &rules.Error{Pos: rules.Position{File: s.Name, Line: 1, Column: 1}, Msg: msg})
		lines = nil
	}
	return faults, rulefile.File{Name: s.Name, Data: bytes.Join(lines, nil)}, unknown
}
