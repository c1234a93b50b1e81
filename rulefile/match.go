package rulefile

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// bareKeys are the keys of a match whose value is a condition; those of namedKinds have conditions by name.
var bareKeys = []string{"method", "path", "host", "ip", "basic_user"}

// matchKeys returns the keys of a match, except for the names of attributes.
func matchKeys() []string {
	return slices.Sorted(slices.Values(append(slices.Clone(bareKeys), slices.Collect(maps.Keys(namedKinds))...)))
}

// match reads a match block.
func (f *file) match(n *strictyaml.Node, what string) rules.Match {
	m := rules.Match{Pos: f.at(n)}
	if n.Kind == strictyaml.Sequence && what == "match" {
		f.Fault(n, "match: is a list: write one mapping, of which all conditions must match; for alternatives write two rules, "+
			"or a list of values for one key")
		return m
	}
	if !f.IsMapping(n, what) {
		return m
	}
	for _, field := range n.Fields {
		key := field.Key.Text
		kind, named := namedKinds[key]
		switch {
		case slices.Contains(bareKeys, key) || f.attributes[key]:
			if p, ok := f.predicate(field.Key, key, field.Value, what); ok {
				m.Predicates = append(m.Predicates, p)
			}
		case named:
			m.Predicates = append(m.Predicates, f.namedPredicates(kind, field, what)...)
		case !f.mayLose(key):
			f.unknownCondition(field.Key, what)
		}
	}
	return m
}

// emptied reports whether a match has no conditions only because all written ones have errors.
func emptied(m rules.Match, n *strictyaml.Node) bool {
	return len(m.Predicates) == 0 && (n == nil || n.Kind != strictyaml.Mapping || len(n.Fields) > 0 || !n.Whole())
}

// namedPredicates reads the conditions on headers, or on another kind that a request has several of.
func (f *file) namedPredicates(kind string, field strictyaml.Field, what string) []rules.Predicate {
	word := field.Key.Text
	n := field.Value
	if n.Kind == strictyaml.Scalar {
		f.Fault(n, "%s: %s: is %s: write the name too, %s: {NAME: %s}, or {NAME: {present: true}}",
			what, word, n, word, n.Text)
		return nil
	}
	if !f.IsMapping(n, what+": "+word) {
		return nil
	}
	if len(n.Fields) == 0 && n.Whole() {
		f.Fault(n, "%s: %s: has no conditions: write %s: {NAME: VALUE}, or {NAME: {present: true}}", what, word, word)
	}
	var all []rules.Predicate
	for _, named := range n.Fields {
		read := f.String
		if kind == "header" {
			read = f.headerName
		}
		if name, ok := read(named.Key, what+": "+word); ok {
			if p, ok := f.predicate(named.Key, kind+":"+name, named.Value, what+": "+word); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

func (f *file) unknownCondition(key *strictyaml.Node, what string) {
	kind, name, isRef := strings.Cut(key.Text, ":")
	if _, named := namedKinds[kind]; isRef && named {
		f.Fault(key, "%s: there is no key %s: write %s: {%s: …}", what, key, kind, name)
		return
	}
	known := append(matchKeys(), f.attributeNames...)
	f.UnknownKey(key, what, known, map[string]string{
		"api_key": "declare it under attributes, as in client: {api_key: X-Api-Key}, and write client: here",
		"and":     "all keys of a match must match anyway: write one per line",
		"or":      "write two rules, or a list of values for one key",
		"any":     "write two rules, or a list of values for one key",
		"not":     "write it inside a condition, as in path: {not: /healthz}, or use except",
		"url":     "write path: for the path, host: for the host and query: for its parameters",
		"uri":     "write path: for the path, host: for the host and query: for its parameters",
		"user":    "declare it under attributes, as in user: {jwt: sub}",
		"per":     "move it next to match",
		"limit":   "move it next to match",
	})
}

// predicate reads the condition on one attribute. It returns false if a part of it has an error.
func (f *file) predicate(key *strictyaml.Node, ref string, n *strictyaml.Node, what string) (rules.Predicate, bool) {
	before := f.Count()
	c := &condition{file: f, what: what + ": " + key.Text}
	c.p.Pos, c.p.Ref = f.at(n), rules.Ref{Pos: f.at(key), Name: ref}
	c.read(n)
	return c.p, f.Count() == before && !c.lost
}

// condition reads a predicate.
type condition struct {
	*file
	what string
	p    rules.Predicate
	part bool // inside a list or a not, where some keys are invalid
	lost bool // a part of it has an error elsewhere
}

func (c *condition) read(n *strictyaml.Node) {
	switch n.Kind {
	case strictyaml.Null:
		c.Fault(n, "%s: is empty: write a value, a list of values, or {present: true}", c.what)
	case strictyaml.Scalar:
		c.value(n)
	case strictyaml.Sequence:
		c.anyOf(n)
	case strictyaml.Mapping:
		if !n.Whole() {
			c.lost = true
			return
		}
		if len(n.Fields) != 1 {
			words := strictyaml.Words(conditionFields().Keys())
			c.Fault(n, "%s: has %d conditions: write exactly one of %s", c.what, len(n.Fields), words)
			return
		}
		strictyaml.Decode(&c.Decoder, n, c.what, conditionFields(), conditionMoved, c)
	}
}

func (c *condition) anyOf(n *strictyaml.Node) {
	if len(n.Items) == 0 {
		c.Fault(n, "%s: the list is empty: write a value, or remove the condition", c.what)
	}
	was := c.part
	c.part = true
	for _, item := range n.Items {
		if item.Kind == strictyaml.Sequence {
			c.Fault(item, "%s: is a list in a list: write one list", c.what)
			continue
		}
		c.read(item)
	}
	c.part = was
}

// value adds a value as written; for a path it is a pattern.
func (c *condition) value(n *strictyaml.Node) {
	switch c.p.Ref.Name {
	case "path":
		c.p.Patterns = append(c.p.Patterns, n.Text)
		return
	case "method", "host", "ip":
		if words := strings.Split(n.Text, ","); len(words) > 1 {
			for i := range words {
				words[i] = strings.TrimSpace(words[i])
			}
			c.Fault(n, "%s: %s is one value: write a list, [%s]", c.what, n, strings.Join(words, ", "))
			return
		}
		if n.Text == "" {
			c.Fault(n, "%s: is empty: write a value, or remove the condition", c.what)
		}
	}
	c.p.Values = append(c.p.Values, n.Text)
}

// conditionFields is a function because conditions contain conditions.
func conditionFields() strictyaml.Fields[condition] {
	return strictyaml.Fields[condition]{
		"in": func(c *condition, n *strictyaml.Node) {
			if _, ok := c.Sequence(n, c.what+": in"); ok {
				c.anyOf(n)
			}
		},
		"not":    (*condition).not,
		"prefix": func(c *condition, n *strictyaml.Node) { c.texts(n, "prefix", &c.p.Prefixes) },
		"suffix": func(c *condition, n *strictyaml.Node) { c.texts(n, "suffix", &c.p.Suffixes) },
		"regex":  func(c *condition, n *strictyaml.Node) { c.texts(n, "regex", &c.p.Regexps) },
		"list": func(c *condition, n *strictyaml.Node) {
			values := &c.p.Values
			if c.p.Ref.Name == "path" {
				values = &c.p.Patterns
			}
			some := c.listValues(n, c.what+": list")
			c.lost = c.lost || len(some) == 0
			*values = append(*values, some...)
		},
		"present": (*condition).present,
	}
}

var conditionMoved = map[string]string{
	"equals": "write the value directly after the attribute", "eq": "write the value directly after the attribute",
	"is": "write the value directly after the attribute", "exact": "write the value directly after the attribute",
	"exists": "write present: true or present: false", "missing": "write present: false",
	"not_in": "write not: [a, b]", "contains": "write regex: with the text, its special characters escaped by \\",
	"pattern": "write the pattern directly after path; for a regular expression write regex",
	"lists":   "write list: NAME; for several write [{list: a}, {list: b}]",
}

func (c *condition) texts(n *strictyaml.Node, word string, into *[]string) {
	items, ok := c.Strings(n, c.what+": "+word)
	if !ok {
		return
	}
	if len(items) == 0 {
		c.Fault(n, "%s: %s: the list is empty: write a value, or remove the condition", c.what, word)
	}
	for _, item := range items {
		*into = append(*into, item.Text)
	}
}

func (c *condition) not(n *strictyaml.Node) {
	if c.part || c.p.Not {
		c.Fault(n, "%s: not is not valid in a list or in another not: to exclude several values write not: [a, b]",
			c.what)
		return
	}
	c.p.Not = true
	c.read(n)
	if c.p.Present != nil { // not present is absent
		absent := !*c.p.Present
		c.p.Present, c.p.Not = &absent, false
	}
}

func (c *condition) present(n *strictyaml.Node) {
	if c.part {
		c.Fault(n, "%s: present is not valid in a list: write {present: true} alone", c.what)
		return
	}
	if present, ok := c.Bool(n, c.what+": present"); ok {
		c.p.Present = &present
	}
}
