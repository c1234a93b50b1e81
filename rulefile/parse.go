package rulefile

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// Options are settings that files do not contain. The zero Options are ready for use.
type Options struct {
	MergeDomains bool   // several Envoy files may contain parts of one domain; else that is an error
	ChargeDenied bool   // Envoy limits charge denied requests too, like Envoy's service
	DigestSecret []byte // keys the digests of secret attributes; see [rules.Config]
	// Incomplete means that other files could not be read, so that unknown names are not errors. It is for finding
	// errors: rules loaded with it may lack limits.
	Incomplete bool
}

// LoadResult is a compiled rule set with its files.
type LoadResult struct {
	Set    *rules.Set
	Files  []File
	Digest string // short hash of the files' names and contents
}

// Load reads files and directories like [ReadFiles], and compiles their rules.
func Load(o Options, paths ...string) (*LoadResult, error) {
	sources, err := ReadFiles(paths...)
	if err != nil {
		return nil, err
	}
	return load(o, sources)
}

// LoadFiles compiles the rules of files that were already read.
func LoadFiles(o Options, sources ...File) (*LoadResult, error) { return load(o, sources) }

func load(o Options, sources []File) (loaded *LoadResult, err error) {
	defer panics.Recover(func(e *panics.Error) { loaded, err = nil, panicked(e, rules.Position{}, "") })
	cfg, err := parse(o, sources, true)
	if err != nil {
		return nil, err
	}
	set, err := rules.New(cfg)
	if err != nil {
		return nil, inOrder(sources, flatten(err))
	}
	return &LoadResult{Set: set, Files: sources, Digest: digest(sources)}, nil
}

// Parse returns the configuration of some files. The error joins all errors, each a [*rules.Error]. If there are any,
// it includes those that [rules.New] finds in the valid parts, so that one run shows all of them. Errors that may be
// caused by a file that is not valid YAML are not reported.
//
// Empty files and files without rules are valid, because other files may have rules; [Load] and [NewWatcher] reject
// them. Parse does not panic: a bug becomes an error of the file.
func Parse(o Options, sources ...File) (rules.Config, error) { return parse(o, sources, false) }

// parse reads files. If complete is set, an empty file is an error, and so are files without any limit and without
// rules: []. Otherwise a truncated file would lift every limit.
func parse(o Options, sources []File, complete bool) (cfg rules.Config, err error) {
	p := &parser{
		complete: complete,
		options:  o, lists: make(map[string]*list), attributes: make(map[string]bool),
		onlyOnce: make(map[string]rules.Position), domains: make(map[string]int), unnamed: make(map[string]bool),
	}
	defer panics.Recover(func(e *panics.Error) { cfg, err = rules.Config{}, panicked(e, p.reading.at, p.reading.rule) })
	p.partialAttributes, p.partialLists = o.Incomplete, o.Incomplete
	p.cfg.DigestSecret, p.cfg.ChargeDenied = o.DigestSecret, o.ChargeDenied
	p.read(sources)
	if complete && !p.saysNone && len(p.faults) == 0 && len(sources) > 0 {
		p.checkNone(sources[0].Name)
	}
	if len(p.faults) == 0 {
		if o.Incomplete {
			p.declareMissing()
		}
		return p.cfg, nil
	}
	p.reading.at = rules.Position{}
	if !p.tooMany() {
		p.compileReduced()
	}
	return rules.Config{}, inOrder(sources, p.faults)
}

// panicked returns the error of a file whose reading panicked.
func panicked(e *panics.Error, at rules.Position, rule string) error {
	return errors.Join(&rules.Error{Pos: at, Rule: rule, Msg: e.Error(), Err: e})
}

// parser collects the contents of several files.
type parser struct {
	reading struct { // position of the current entry
		at   rules.Position
		rule string
	}

	options    Options
	cfg        rules.Config // valid parts only
	attributes map[string]bool
	lists      map[string]*list
	onlyOnce   map[string]rules.Position // positions of settings that only one file may have
	domains    map[string]int            // indices in cfg
	// Names for suggestions.
	attributeNames, listNames []string

	documentCount int

	complete bool // there are no other files
	saysNone bool // a file has an empty list of rules

	faults  []error
	unnamed map[string]bool // placeholder names of rules without a name
	// Some declarations could not be read, so that names are missing.
	partialAttributes, partialLists bool
	lostAttributes                  string // text with declarations that could not be read
}

func (p *parser) read(sources []File) {
	if len(sources) > MaxFiles {
		p.fault(rules.Position{File: sources[MaxFiles].Name}, "", fmt.Sprintf("%d files: at most %d are read: put more rules into each", len(sources), MaxFiles))
		return
	}
	var native, envoy []*file
	for _, s := range sources {
		p.reading.at = rules.Position{File: s.Name}
		for _, d := range p.documents(s) {
			f := &file{parser: p, Decoder: strictyaml.Decoder{Renamed: renamed}, name: s.Name, root: d.Root}
			isEnvoy := looksLikeEnvoy(d.Data, d.Root)
			for _, fault := range d.Faults {
				if isEnvoy {
					fault.Msg = envoyFault(fault)
				}
				p.fault(rules.Position{File: s.Name, Line: fault.Line, Column: fault.Column}, "", fault.Msg)
			}
			switch {
			case isEnvoy && d.Root != nil:
				envoy = append(envoy, f)
			case isEnvoy:
			case d.Root == nil:
				p.partialAttributes, p.partialLists = true, true
			default:
				native = append(native, f)
			}
		}
	}
	for _, f := range native {
		p.reading.at = rules.Position{File: f.name}
		f.declarations()
	}
	p.attributeNames, p.listNames = someNames(p.attributes), someNames(p.lists)
	for _, f := range native {
		p.reading.at = rules.Position{File: f.name}
		f.sections()
	}
	for _, f := range envoy {
		p.reading.at = rules.Position{File: f.name}
		f.domain()
	}
}

// documents reads the documents of a file. Empty ones are dropped unless all are empty.
func (p *parser) documents(s File) []strictyaml.Document {
	all := strictyaml.ParseAll(s.Data)
	if p.documentCount += len(all); p.documentCount > MaxDocuments {
		if p.documentCount-len(all) <= MaxDocuments {
			bounds.RuleFiles.Reached()
			p.fault(rules.Position{File: s.Name}, "", fmt.Sprintf("more than %d documents in total: put more rules into each", MaxDocuments))
		}
		p.partialAttributes, p.partialLists = true, true
		return nil
	}
	some := slices.DeleteFunc(slices.Clone(all), func(d strictyaml.Document) bool { return d.Root != nil && d.Root.Kind == strictyaml.Null })
	if len(some) == 0 {
		return all[:1]
	}
	return some
}

// checkNone reports a configuration without effect, in its first file.
func (p *parser) checkNone(file string) {
	c := &p.cfg
	some := len(c.Rules)+len(c.DenyList)+len(c.AllowList)+len(c.Priorities)+len(c.AdaptiveLimits) > 0 || c.Unmatched == rules.UnmatchedDeny ||
		slices.ContainsFunc(c.Domains, func(d rules.Domain) bool { return len(d.Descriptors) > 0 })
	if some {
		return
	}
	msg := "there are no rules: write a list below rules:, or rules: [] for no rules"
	if len(c.Domains) > 0 {
		msg = "the domain has no limits: write a list below descriptors:, or descriptors: [] for no limits"
	}
	p.fault(rules.Position{File: file, Line: 1, Column: 1}, "", msg)
}

// someNames returns the first 500 names in alphabetical order, because searching more for a suggestion takes too long.
func someNames[V any](m map[string]V) []string {
	const most = 500
	names := slices.Sorted(maps.Keys(m))
	return names[:min(len(names), most)]
}

// tooMany reports whether there are more errors than are shown, so that the search can stop.
func (p *parser) tooMany() bool { return len(p.faults) > maxFaults }

func (p *parser) fault(at rules.Position, rule, msg string) {
	p.faults = append(p.faults, &rules.Error{Pos: at, Rule: rule, Msg: msg})
}

// maxFaults is the maximum number of reported errors. A file with more usually repeats one mistake.
const maxFaults = 1000

// inOrder joins errors in the order of the files and positions.
func inOrder(sources []File, faults []error) error {
	order := make(map[string]int, len(sources))
	for i, s := range sources {
		order[s.Name] = i
	}
	place := func(err error) rules.Position {
		var e *rules.Error
		if errors.As(err, &e) {
			return e.Pos
		}
		return rules.Position{}
	}
	slices.SortStableFunc(faults, func(a, b error) int {
		x, y := place(a), place(b)
		return cmp.Or(cmp.Compare(order[x.File], order[y.File]), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	if len(faults) > maxFaults {
		more := &rules.Error{Pos: place(faults[maxFaults]), Msg: "more errors follow, which are not shown"}
		faults = append(faults[:maxFaults:maxFaults], more)
	}
	return errors.Join(faults...)
}

// flatten returns the parts of a joined error.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// looksLikeEnvoy reports whether a file is in Envoy's format, as far as possible also if it is not valid YAML.
func looksLikeEnvoy(data []byte, root *strictyaml.Node) bool {
	if root == nil {
		return domainLine.Match(data)
	}
	return root.Kind == strictyaml.Mapping && (root.Field("domain") != nil || slices.Contains(root.Lost, "domain"))
}

var domainLine = regexp.MustCompile(`(?m)^domain[ \t]*:`)

// Bounds of files: 1 MiB each, 16 MiB in total.
const (
	MaxFileBytes  = strictyaml.MaxBytes
	MaxTotalBytes = 16 << 20
	MaxFiles      = 1000
	MaxDocuments  = 10_000 // in all files; 1000 in a file
)

// File is a file: its name in errors, and its content.
type File struct {
	Name string
	Data []byte
}

// ReadFiles reads files, and the rule files of directories: *.yaml and *.yml, in the order of their names. In a
// directory it skips names that begin with a dot, *_test.yaml and *_test.yml, which contain tests, and subdirectories.
// It follows links.
func ReadFiles(paths ...string) ([]File, error) {
	r := reader{seen: make(map[string]bool)}
	if len(paths) == 0 {
		return nil, &rules.Error{Msg: "no rule files: give a file or a directory"}
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

// fail reports an error of the operating system, without the path, which the error already has.
func (r *reader) fail(path string, err error) {
	r.fault(path, "%s", plainfile.Reason(err))
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
		info, err := os.Stat(name) // of the target of a link
		switch {
		case err != nil:
			r.fail(name, err)
		case info.IsDir():
			continue
		case !info.Mode().IsRegular():
			r.fault(name, "not a regular file: remove it, or rename it")
		default:
			r.file(name)
		}
		found = true
	}
	if !found {
		r.fault(path, "no rule files in this directory: add files named *.yaml or *.yml")
	}
}

// isRuleFile reports whether the name of a file in a directory is that of a rule file.
func isRuleFile(name string) bool {
	base, yaml := strings.CutSuffix(name, ".yaml")
	if !yaml {
		base, yaml = strings.CutSuffix(name, ".yml")
	}
	return yaml && !strings.HasPrefix(name, ".") && !strings.HasSuffix(base, "_test")
}

func (r *reader) file(path string) {
	if clean := filepath.Clean(path); r.seen[clean] {
		return // listed twice, or also in a listed directory
	} else if r.seen[clean] = true; len(r.seen) > MaxFiles {
		if len(r.seen) == MaxFiles+1 {
			bounds.RuleFiles.Reached()
			r.fault(path, "more than %d files: put more rules into each", MaxFiles)
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
		r.fault(path, "more than %d bytes in total: use fewer rules", MaxTotalBytes)
	case r.bytes <= MaxTotalBytes:
		r.files = append(r.files, File{Name: path, Data: data})
	}
}

// digest returns a short hash that does not depend on the directory of the files, so that instances can be compared.
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
