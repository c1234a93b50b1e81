package config

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// decoder reads a file into a configuration.
type decoder struct {
	strictyaml.Decoder
	to   *Config
	env  func(string) (string, bool)
	name string // path of the setting being read

	expanded      bool         // environment variables are already replaced
	routeEntries  []routeEntry // nodes of gateway.routes
	upstreamNames []string     // including upstreams with errors
	broken        []string     // settings and sections with errors
}

// section is a node in the tree of sections and settings.
type section struct {
	below map[string]*section
	read  func(*decoder, *strictyaml.Node) // nil for sections
}

// sections returns the tree of settings.
func sections(settings []Setting) *section {
	top := newSection()
	for _, s := range settings {
		top.add(s.Name, s.read)
	}
	return top
}

// parsedDefaults caches the nodes of defaults, because each upstream and route of a file reads them.
var parsedDefaults sync.Map

// readDefaults sets settings to their defaults.
func (d *decoder) readDefaults(settings []Setting) {
	for _, s := range settings {
		if s.Default != "" {
			root, ok := parsedDefaults.Load(s.Default)
			if !ok {
				root, _ = strictyaml.Parse([]byte(s.Default))
				parsedDefaults.Store(s.Default, root)
			}
			s.read(d, root.(*strictyaml.Node))
		}
	}
}

func newSection() *section { return &section{below: map[string]*section{}} }

// add adds a setting below the sections in its name.
func (s *section) add(name string, read func(*decoder, *strictyaml.Node)) {
	for part := range strings.SplitSeq(name, ".") {
		if s.below[part] == nil {
			s.below[part] = newSection()
		}
		s = s.below[part]
	}
	s.read = read
}

// section reads a mapping of settings and sections. What is its path, "" for the whole file.
func (d *decoder) section(n *strictyaml.Node, s *section, what string) {
	if !d.IsMapping(n, what) {
		d.broken = append(d.broken, what)
		return
	}
	for name := range s.below {
		if n.MayLose(name) && n.Field(name) == nil {
			d.broken = append(d.broken, under(what, name))
		}
	}
	for _, field := range n.Fields {
		name := field.Key.Text
		below := s.below[name]
		switch {
		case below == nil && newName(under(what, name)) != "":
			d.renamedKey(field, s, what)
		case below == nil && removed[under(what, name)] != "":
			d.Fault(field.Key, "%s: removed: %s: delete it", under(what, name), removed[under(what, name)])
		case below == nil:
			if best := d.UnknownKey(field.Key, what, known(s), nil); best != "" {
				d.broken = append(d.broken, under(what, best))
			}
		case below.read != nil:
			d.name = under(what, name)
			before := d.Count()
			if value := d.expand(field.Value); value != nil {
				below.read(d, value)
			}
			if d.Count() > before || !field.Value.Whole() {
				d.broken = append(d.broken, under(what, name))
			}
		default:
			d.section(field.Value, below, under(what, name))
		}
	}
}

// sound reports whether the named settings and sections, and everything in them, have no errors. Checks of several settings
// together ask first, because their errors could be consequences of an error in one setting.
func (d *decoder) sound(names ...string) bool {
	for _, b := range d.broken {
		for _, name := range names {
			if b == "" || b == name || strings.HasPrefix(b, name+".") || strings.HasPrefix(name, b+".") {
				return false
			}
		}
	}
	return true
}

// under returns the path of a key in a section.
func under(what, name string) string {
	if what == "" {
		return name
	}
	return what + "." + name
}

// known returns the sorted keys of a section.
func known(s *section) []string {
	fields := strictyaml.Fields[section]{}
	for name := range s.below {
		fields[name] = nil
	}
	return fields.Keys()
}

// unclosed matches a variable without a closing brace at the end of a text.
var unclosed = regexp.MustCompile(`\$\{[^}]*$`)

var variable = regexp.MustCompile(`\$(\$|\{[^}]*\})`)

// expand replaces ${NAME} by environment variables and $$ by $ in all scalars of a value. It returns nil if a variable is not set.
func (d *decoder) expand(n *strictyaml.Node) *strictyaml.Node {
	if d.expanded {
		return n
	}
	c := *n
	sound := true
	switch n.Kind {
	case strictyaml.Scalar:
		if open := unclosed.FindString(strings.ReplaceAll(n.Text, "$$", "")); open != "" {
			d.Fault(n, "%s: %s has no closing brace: write ${NAME} for an environment variable, or $${ for the text ${", d.name, strictyaml.Quote(open))
			return nil
		}
		c.Text = variable.ReplaceAllStringFunc(n.Text, func(v string) string {
			if v == "$$" {
				return "$"
			}
			name := v[2 : len(v)-1]
			value, ok := d.env(name)
			if !ok {
				d.Fault(n, "%s: there is no environment variable %s: set it, or write $$ for a $", d.name, strictyaml.Quote(name))
				sound = false
			}
			return value
		})
	case strictyaml.Sequence:
		c.Items = make([]*strictyaml.Node, len(n.Items))
		for i, item := range n.Items {
			c.Items[i] = d.expand(item)
			sound = sound && c.Items[i] != nil
		}
	case strictyaml.Mapping:
		c.Fields = make([]strictyaml.Field, len(n.Fields))
		for i, f := range n.Fields {
			c.Fields[i] = strictyaml.Field{Key: f.Key, Value: d.expand(f.Value)}
			sound = sound && c.Fields[i].Value != nil
		}
	}
	if !sound {
		return nil
	}
	return &c
}

// The types of values.

func file(to *string) value { return text("file", to) }

func text(kind string, to *string) value {
	return value{kind, func(d *decoder, n *strictyaml.Node) {
		if s, ok := d.String(n, d.name); ok {
			*to = s
		}
	}, textShape}
}

// urlText is a text whose scheme is checked together with other settings. Pattern is for the schema only.
func urlText(to *string, pattern string) value {
	v := text("URL", to)
	v.shape = shape{"type": "string", "pattern": pattern}
	return v
}

// checkedText is a text that must satisfy sound; its error ends with advice.
func checkedText(kind string, to *string, sound func(string) bool, advice string, s shape) value {
	return value{kind, func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if ok && !sound(s) {
			d.Fault(n, "%s: is %s: %s", d.name, n, advice)
			ok = false
		}
		if ok {
			*to = s
		}
	}, s}
}

// entries reads a list of at least one text.
func (d *decoder) entries(n *strictyaml.Node) ([]*strictyaml.Node, bool) {
	items, ok := d.Strings(n, d.name)
	if ok && len(items) == 0 {
		d.Fault(n, "%s: the list is empty: write an entry, or remove it", d.name)
		return nil, false
	}
	return items, ok
}

func texts(kind string, to *[]string) value {
	return value{kind, func(d *decoder, n *strictyaml.Node) {
		items, ok := d.entries(n)
		if !ok {
			return
		}
		list := make([]string, len(items))
		for i := range items {
			list[i] = items[i].Text
		}
		*to = list
	}, textsShape}
}

func word(to *string, words ...string) value {
	return value{"`" + strings.Join(words, "`, `") + "`", func(d *decoder, n *strictyaml.Node) {
		if i, ok := d.OneOf(n, d.name, words...); ok {
			*to = words[i]
		}
	}, shape{"enum": words}}
}

func boolean(to *bool) value {
	return value{"boolean", func(d *decoder, n *strictyaml.Node) {
		if b, ok := d.Bool(n, d.name); ok {
			*to = b
		}
	}, shape{"type": "boolean"}}
}

func number(to *int64, minimum, maximum int64) value {
	return value{fmt.Sprintf("integer, %d–%d", minimum, maximum), func(d *decoder, n *strictyaml.Node) {
		if i, ok := d.Int(n, d.name, minimum, maximum); ok {
			*to = i
		}
	}, shape{"type": "integer", "minimum": minimum, "maximum": maximum}}
}

// maxDuration is the maximum duration in a file. A sum of several cannot overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

func duration(to *time.Duration) value { return durationFrom(to, 1, positiveShape) }

// durationOrNone is a duration that may be 0.
func durationOrNone(to *time.Duration) value { return durationFrom(to, 0, durationShape) }

// interval is the duration of the repetitions of a loop, at least least, because a shorter one would occupy a processor.
func interval(to *time.Duration, least time.Duration) value {
	return durationFrom(to, least, positiveShape)
}

func durationFrom(to *time.Duration, least time.Duration, s shape) value {
	return value{"duration", func(d *decoder, n *strictyaml.Node) {
		if t, ok := d.DurationBetween(n, d.name, least, maxDuration); ok {
			*to = t
		}
	}, s}
}

var sizeUnits = map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

var sizePattern = regexp.MustCompile(`^([0-9]{1,9})(B|KiB|MiB|GiB)$`)

func size(to *int64, minimum, maximum int64) value {
	return value{fmt.Sprintf("size, %s–%s", sizeText(minimum), sizeText(maximum)), func(d *decoder, n *strictyaml.Node) {
		m := sizePattern.FindStringSubmatch(n.Text)
		if n.Kind != strictyaml.Scalar || m == nil {
			d.Fault(n, "%s: is %s: write a size such as 512B, 64KiB, 16MiB or 2GiB", d.name, n)
			return
		}
		count, _ := strconv.ParseInt(m[1], 10, 64) // cannot fail: at most nine digits
		bytes := count * sizeUnits[m[2]]
		if bytes < minimum || bytes > maximum {
			d.Fault(n, "%s: %s is not between %s and %s", d.name, n.Text, sizeText(minimum), sizeText(maximum))
			return
		}
		*to = bytes
	}, sizeShape}
}

func sizeText(n int64) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if n >= sizeUnits[unit] {
			return strconv.FormatInt(n/sizeUnits[unit], 10) + unit
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func address(to *string) value {
	return value{"address", func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if !ok {
			return
		}
		const such = "write host:port such as 127.0.0.1:8081 or :8081 for all interfaces, unix:///path, or off"
		if path, unix := strings.CutPrefix(s, "unix:"); unix {
			if strings.Trim(path, "/") == "" {
				d.Fault(n, "%s: is %s: there is no path: write unix:///run/sluice.sock", d.name, n)
				return
			}
		} else if s != Off {
			_, port, err := net.SplitHostPort(s)
			if number, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || number > 65535 {
				d.Fault(n, "%s: is %s: %s", d.name, n, such)
				return
			}
		}
		*to = s
	}, addressShape}
}

// clients reads the domains of rls.client_domains by client name.
func (d *decoder) clients(n *strictyaml.Node) {
	if !d.IsMapping(n, d.name) {
		return
	}
	all := make(map[string][]string, len(n.Fields))
	for _, field := range n.Fields {
		items, ok := d.Strings(field.Value, d.name)
		if !ok {
			continue
		}
		if len(items) == 0 {
			d.Fault(field.Value, `%s: the list is empty: write a domain, or "*" for all of them`, d.name)
		}
		for _, item := range items {
			all[field.Key.Text] = append(all[field.Key.Text], item.Text)
		}
	}
	d.to.RLS.ClientDomains = all
}
