package rulefile

import (
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// namedKinds maps the kinds of references with a name, as written in rule files, to those of package rules. They cannot
// be names of attributes, because they are keys of a match.
var namedKinds = map[string]string{
	"header": "header", "query": "query", "cookie": "cookie", "claim": "claim", "jwt": "claim", "attr": "attr",
}

// reference returns a reference in the form of package rules.
func reference(text string) string {
	if name, ok := strings.CutPrefix(text, "jwt:"); ok {
		return "claim:" + name
	}
	return text
}

// ref reads a reference.
func (f *file) ref(n *strictyaml.Node, what string) (rules.Ref, bool) {
	text, ok := f.String(n, what)
	if !ok {
		return rules.Ref{}, false
	}
	if name, secret := strings.CutPrefix(text, "api_key:"); secret {
		f.Fault(n, "%s: an API key is secret: declare it under attributes, as in client: {api_key: %s}, "+
			"and write client here", what, name)
		return rules.Ref{}, false
	}
	if strings.ContainsAny(text, ", ") {
		words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		f.Fault(n, "%s: %s is one value: write a list, [%s]", what, n, strings.Join(words, ", "))
		return rules.Ref{}, false
	}
	return rules.Ref{Pos: f.at(n), Name: reference(text)}, true
}

// headerName reads the name of a header.
func (f *file) headerName(n *strictyaml.Node, what string) (string, bool) {
	name, ok := f.String(n, what)
	if ok && strings.ContainsAny(name, " \t\n:,;/\"{}[]()<>@?=\\") {
		f.Fault(n, "%s: %s is not a header name: write one without a colon or spaces, such as X-User", what, n)
		ok = false
	}
	return name, ok
}

func (f *file) attributeSection(n *strictyaml.Node) {
	if !f.IsMapping(n, "attributes") {
		f.partialAttributes = true // the declared names are unknown
		return
	}
	f.partialAttributes = f.partialAttributes || n.Partial
	f.lostAttributes += n.LostText
	for _, name := range n.Lost {
		f.attributes[name] = true
		f.cfg.Attributes = append(f.cfg.Attributes, placeholder(f.at(n), name))
	}
	for _, field := range n.Fields {
		if f.flush(""); f.tooMany() {
			break
		}
		d := &attributeDecoder{file: f, what: "attribute " + strictyaml.Quote(field.Key.Text)}
		d.attr.Pos, d.attr.Name = f.at(field.Key), field.Key.Text
		d.decode(field.Key, field.Value)
		f.attributes[d.attr.Name] = true
		if !f.flush("") {
			d.attr = placeholder(d.attr.Pos, d.attr.Name)
		}
		f.cfg.Attributes = append(f.cfg.Attributes, d.attr)
	}
}

type attributeDecoder struct {
	*file
	what    string
	attr    rules.Attribute
	sources int // in the current mapping
}

func (d *attributeDecoder) decode(key, n *strictyaml.Node) {
	if _, taken := namedKinds[key.Text]; taken || key.Text == "api_key" {
		d.Fault(key, "%s: the name is reserved for a source of attributes: choose another name", d.what)
	}
	switch n.Kind {
	case strictyaml.Sequence:
		for _, item := range n.Items {
			d.entry(item)
		}
	default:
		d.entry(n)
	}
	if len(d.attr.Sources) == 0 && d.Count() == 0 && n.Whole() {
		d.Fault(n, "%s: has no source: write one, such as {header: X-User} or {jwt: sub}", d.what)
	}
}

// entry reads one source with its options, or a reference as the short form of one.
func (d *attributeDecoder) entry(n *strictyaml.Node) {
	d.sources = 0
	switch n.Kind {
	case strictyaml.Mapping:
		if len(n.Fields) == 0 && n.Whole() {
			d.Fault(n, "%s: has no source: write one, such as {header: X-User} or {jwt: sub}", d.what)
		}
		strictyaml.Decode(&d.Decoder, n, d.what, attributeFields, attributeMoved, d)
		if d.sources > 1 {
			d.Fault(n, "%s: has %d sources: write a list, of which the first present one is used, "+
				"as in [{jwt: sub}, {header: X-User}]", d.what, d.sources)
		}
	case strictyaml.Scalar:
		d.short(n)
	default:
		d.Fault(n, "%s: is %s: write a source, such as {header: X-User} or {jwt: sub}", d.what, n)
	}
}

// short reads a reference. api_key: makes it secret.
func (d *attributeDecoder) short(n *strictyaml.Node) {
	if name, secret := strings.CutPrefix(n.Text, "api_key:"); secret && name != "" {
		if strings.ContainsAny(name, ", ") {
			d.Fault(n, "%s: %s is not a header name: write one without a colon or spaces, such as X-User", d.what, strictyaml.Quote(name))
			return
		}
		d.attr.Secret = true
		d.from(n, "header:"+name)
		return
	}
	if ref, ok := d.ref(n, d.what); ok {
		d.from(n, ref.Name)
	}
}

func (d *attributeDecoder) from(n *strictyaml.Node, ref string) {
	d.sources++
	d.attr.Sources = append(d.attr.Sources, rules.Ref{Pos: d.at(n), Name: ref})
}

var attributeFields = strictyaml.Fields[attributeDecoder]{
	"header": func(d *attributeDecoder, n *strictyaml.Node) {
		if name, ok := d.headerName(n, d.what+": header"); ok {
			d.from(n, "header:"+name)
		}
	},
	"api_key": func(d *attributeDecoder, n *strictyaml.Node) {
		if name, ok := d.headerName(n, d.what+": api_key"); ok {
			d.from(n, "header:"+name)
			d.attr.Secret = true
		}
	},
	"query":  attributeSource("query"),
	"cookie": attributeSource("cookie"),
	"claim":  attributeSource("claim"),
	"jwt":    attributeSource("jwt"),
	"attr":   attributeSource("attr"),
	"basic_user": func(d *attributeDecoder, n *strictyaml.Node) {
		if yes, ok := d.Bool(n, d.what+": basic_user"); ok && !yes {
			d.Fault(n, "%s: basic_user: is false: write true, or remove it", d.what)
		}
		d.from(n, "basic_user")
	},
	"default": func(d *attributeDecoder, n *strictyaml.Node) {
		if text, ok := d.String(n, d.what+": default"); ok {
			d.attr.Default = &text
		}
	},
	"secret": func(d *attributeDecoder, n *strictyaml.Node) {
		if secret, _ := d.Bool(n, d.what+": secret"); secret {
			d.attr.Secret = true
		}
	},
	"lowercase": func(d *attributeDecoder, n *strictyaml.Node) {
		if lower, _ := d.Bool(n, d.what+": lowercase"); lower {
			d.attr.Lowercase = true
		}
	},
}

func attributeSource(word string) func(*attributeDecoder, *strictyaml.Node) {
	return func(d *attributeDecoder, n *strictyaml.Node) {
		if name, ok := d.String(n, d.what+": "+word); ok {
			d.from(n, namedKinds[word]+":"+name)
		}
	}
}

var attributeMoved = map[string]string{
	"ip":     "ip is built in: refer to ip directly",
	"path":   "path is built in: refer to path:NAME for a {NAME} in the rule's path",
	"method": "method is built in: refer to method directly",
	"host":   "host is built in: refer to host directly",
	"from":   "write the source as the key, such as {header: X-User} or {jwt: sub}",
	"source": "write the source as the key, such as {header: X-User} or {jwt: sub}",
}

// list is a list of values that several conditions share.
type list struct {
	at     rules.Position
	values []string
	lost   bool // it has an error
}

func (f *file) listSection(n *strictyaml.Node) {
	if !f.IsMapping(n, "lists") {
		f.partialLists = true
		return
	}
	f.partialLists = f.partialLists || n.Partial || n.LostText != ""
	for _, name := range n.Lost {
		f.lists[name] = &list{at: f.at(n), lost: true}
	}
	for _, field := range n.Fields {
		what := "list " + strictyaml.Quote(field.Key.Text)
		l := &list{at: f.at(field.Key)}
		if first := f.lists[field.Key.Text]; first != nil {
			f.Fault(field.Key, "%s: already declared at %v: rename one", what, first.at)
			continue
		}
		f.lists[field.Key.Text] = l
		if field.Value.Kind != strictyaml.Sequence {
			f.Fault(field.Value, "%s: is %s: write a list of values, [a, b]", what, field.Value)
			l.lost = true
			continue
		}
		items, ok := f.Strings(field.Value, what)
		l.lost = !ok || field.Value.Partial
		for _, item := range items {
			l.values = append(l.values, item.Text)
		}
	}
}

// listValues returns the values of a list that a condition names.
func (f *file) listValues(n *strictyaml.Node, what string) []string {
	name, ok := f.String(n, what)
	if !ok {
		return nil
	}
	l := f.lists[name]
	if l == nil && !f.partialLists {
		f.unknownList(n, name, what)
	}
	switch {
	case l != nil && len(l.values) == 0 && !l.lost:
		f.Fault(n, "%s: the list %s, at %v, has no values: add one, or remove this condition", what, n, l.at)
	case l != nil:
		return l.values
	}
	return nil
}

func (f *file) unknownList(n *strictyaml.Node, name, what string) {
	names := f.listNames
	best := suggest.Closest(name, names)
	switch {
	case best != "":
		f.Fault(n, "%s: there is no list %s: did you mean %q?", what, n, best)
	case len(names) == 0:
		f.Fault(n, "%s: there is no list %s: declare it under lists, at the top of a file", what, n)
	default:
		some := names[:min(len(names), 10)]
		f.Fault(n, "%s: there is no list %s: declare it under lists, or use %s", what, n, strictyaml.Words(some))
	}
}
