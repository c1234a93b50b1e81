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

// Options are what files do not say. The zero Options work.
type Options struct {
	MergeDomains bool   // several Envoy files may have parts of one domain; else that is an error
	ChargeDenied bool   // Envoy limits charge refused requests too, as Envoy's service does
	DigestSecret []byte // keys the digests of secret attributes; see [rules.Config]
	// Incomplete says that other files could not be read. Names that they may declare are no errors then. It is for finding
	// errors: rules that were loaded with it may lack limits.
	Incomplete bool
}

// LoadResult are rules that are ready for use, with what they were made from.
type LoadResult struct {
	Set    *rules.Set
	Files  []File
	Digest string // short, of the files' names and contents
}

// Load reads files and directories, as [ReadFiles] does, and compiles the rules in them.
func Load(o Options, paths ...string) (*LoadResult, error) {
	sources, err := ReadFiles(paths...)
	if err != nil {
		return nil, err
	}
	return load(o, sources)
}

// LoadFiles compiles the rules of files that were read already.
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

// Parse makes one configuration of some files. The error joins all faults, each a [*rules.Error]. If there are any, it
// also has those that [rules.New] finds in what is sound, so that one look shows all there is to mend; what depends on
// a file that could not be read as YAML is not held against the others.
//
// Files that are empty or have no rules are sound, since others may have them: [Load] and [NewWatcher] refuse them. It does
// not panic, whatever the files hold: a bug is a fault of the file that it was found with.
func Parse(o Options, sources ...File) (rules.Config, error) { return parse(o, sources, false) }

// parse reads files. If they are all there is, an empty one is a fault, and so are files that limit nothing without saying
// so: one that was cut short would lift every limit.
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

// panicked is the fault of a file whose reading panicked.
func panicked(e *panics.Error, at rules.Position, rule string) error {
	return errors.Join(&rules.Error{Pos: at, Rule: rule, Msg: e.Error(), Err: e})
}

// parser collects what several files hold.
type parser struct {
	reading struct { // where the entry stands that is being read
		at   rules.Position
		rule string
	}

	options    Options
	cfg        rules.Config // only what is sound
	attributes map[string]bool
	lists      map[string]*list
	onlyOnce   map[string]rules.Position // where settings stand that one file alone may have
	domains    map[string]int            // their numbers in cfg
	// The names that messages suggest.
	attributeNames, listNames []string

	documentCount int

	complete bool // the files are all there is
	saysNone bool // some file says that it has no rules, with an empty list

	faults  []error
	unnamed map[string]bool // the names of rules that have none
	// Some declarations could not be read, so that names are missing.
	partialAttributes, partialLists bool
	lostAttributes                  string // text with declarations that could not be read
}

func (p *parser) read(sources []File) {
	if len(sources) > MaxFiles {
		p.fault(rules.Position{File: sources[MaxFiles].Name}, "", fmt.Sprintf("there are %d files, at most %d are read", len(sources), MaxFiles))
		return
	}
	var native, envoy []*file
	for _, s := range sources {
		p.reading.at = rules.Position{File: s.Name}
		for _, d := range p.documents(s) {
			f := &file{parser: p, name: s.Name, root: d.Root}
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

// documents reads the documents of a file. Those without a value are left out where others have one.
func (p *parser) documents(s File) []strictyaml.Document {
	all := strictyaml.ParseAll(s.Data)
	if p.documentCount += len(all); p.documentCount > MaxDocuments {
		if p.documentCount-len(all) <= MaxDocuments {
			bounds.RuleFiles.Reached()
			p.fault(rules.Position{File: s.Name}, "", fmt.Sprintf("with this file there are more than %d documents in all: put more rules into each", MaxDocuments))
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

// checkNone reports a configuration that does nothing, in its first file.
func (p *parser) checkNone(file string) {
	c := &p.cfg
	some := len(c.Rules)+len(c.DenyList)+len(c.AllowList)+len(c.Priorities)+len(c.AdaptiveLimits) > 0 || c.Unmatched == rules.UnmatchedDeny ||
		slices.ContainsFunc(c.Domains, func(d rules.Domain) bool { return len(d.Descriptors) > 0 })
	if some {
		return
	}
	msg := "there are no rules: write a list of them below rules:, or rules: [] if there are to be none"
	if len(c.Domains) > 0 {
		msg = "the domain has no limits: write a list below descriptors:, or descriptors: [] if there are to be none"
	}
	p.fault(rules.Position{File: file, Line: 1, Column: 1}, "", msg)
}

// someNames are names in alphabetical order. To search among more for what somebody may have meant takes long.
func someNames[V any](m map[string]V) []string {
	const most = 500
	names := slices.Sorted(maps.Keys(m))
	return names[:min(len(names), most)]
}

// tooMany tells that there are more faults than are shown, so that there is no need to look for more.
func (p *parser) tooMany() bool { return len(p.faults) > maxFaults }

func (p *parser) fault(at rules.Position, rule, msg string) {
	p.faults = append(p.faults, &rules.Error{Pos: at, Rule: rule, Msg: msg})
}

// maxFaults is how many faults are reported: who has more has one mistake many times.
const maxFaults = 1000

// inOrder joins faults in the order of the files and the places in them.
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
		more := &rules.Error{Pos: place(faults[maxFaults]), Msg: "there are more faults from here on, which are not shown"}
		faults = append(faults[:maxFaults:maxFaults], more)
	}
	return errors.Join(faults...)
}

// flatten takes a joined error apart.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// looksLikeEnvoy tells the format of a file, as far as possible also of one that is no sound YAML.
func looksLikeEnvoy(data []byte, root *strictyaml.Node) bool {
	if root == nil {
		return domainLine.Match(data)
	}
	return root.Kind == strictyaml.Mapping && (root.Field("domain") != nil || slices.Contains(root.Lost, "domain"))
}

var domainLine = regexp.MustCompile(`(?m)^domain[ \t]*:`)

// Bounds of what is read: 1 MiB in a file, 16 MiB in all.
const (
	MaxFileBytes  = strictyaml.MaxBytes
	MaxTotalBytes = 16 << 20
	MaxFiles      = 1000
	MaxDocuments  = 10_000 // in all files; 1000 in a file
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
