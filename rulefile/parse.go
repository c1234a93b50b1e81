package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// Options are what files do not say. The zero Options work.
type Options struct {
	MergeDomains bool   // several Envoy files may have parts of one domain; else that is an error
	ChargeDenied bool   // Envoy limits charge refused requests too, as Envoy's service does
	DigestSecret []byte // keys the digests of secret attributes; see [rules.Config]
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
		onlyOnce: make(map[string]rules.Position), domains: make(map[string]int),
	}
	defer panics.Recover(func(e *panics.Error) { cfg, err = rules.Config{}, panicked(e, p.reading.at, p.reading.rule) })
	p.cfg.DigestSecret, p.cfg.ChargeDenied = o.DigestSecret, o.ChargeDenied
	p.read(sources)
	if complete && !p.saysNone && len(p.faults) == 0 && len(sources) > 0 {
		p.checkNone(sources[0].Name)
	}
	if len(p.faults) == 0 {
		return p.cfg, nil
	}
	p.reading.at = rules.Position{}
	if !p.partial && !p.tooMany() {
		if _, err := rules.New(p.cfg); err != nil {
			p.faults = append(p.faults, flatten(err)...)
		}
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

	complete bool // the files are all there is
	saysNone bool // some file says that it has no rules, with an empty list

	faults  []error
	partial bool // something could not be read as YAML, so that names may be missing
}

func (p *parser) read(sources []File) {
	if len(sources) > MaxFiles {
		p.fault(rules.Position{}, "", fmt.Sprintf("there are %d files, at most %d are read", len(sources), MaxFiles))
		return
	}
	var native, envoy []*file
	for _, s := range sources {
		p.reading.at = rules.Position{File: s.Name}
		f := &file{parser: p, name: s.Name}
		root, faults := strictyaml.Parse(s.Data)
		f.root = root
		isEnvoy := looksLikeEnvoy(s.Data, root)
		for _, fault := range faults {
			if isEnvoy {
				fault.Msg = envoyFault(fault)
			}
			p.fault(rules.Position{File: s.Name, Line: fault.Line, Column: fault.Column}, "", fault.Msg)
			p.partial = p.partial || fault.Reason != strictyaml.Duplicate
		}
		switch {
		case root == nil:
		case isEnvoy:
			envoy = append(envoy, f)
		default:
			native = append(native, f)
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
