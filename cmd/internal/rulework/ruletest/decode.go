package ruletest

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// decoder reads one test file.
type decoder struct {
	strictyaml.Decoder
	file     string
	names    map[string]int // of tests, with their lines
	requests int
	sends    int
	reserved map[string]int // reservations of the current test, with their lines
}

// Parse reads a test file. It returns all errors at once, joined, each a [*rules.Error].
func Parse(name string, data []byte) (*File, error) {
	d := &decoder{Decoder: strictyaml.Decoder{Renamed: renamed}, file: name, names: make(map[string]int)}
	root, faults := strictyaml.Parse(data)
	if root == nil {
		return nil, d.join(faults, 0)
	}
	f := &File{Name: name, Start: DefaultStart}
	d.decodeFile(root, f)
	more, dropped := d.Faults()
	if faults = append(faults, more...); len(faults) > 0 {
		return nil, d.join(faults, dropped)
	}
	return f, nil
}

func (d *decoder) join(faults []strictyaml.Fault, dropped int) error {
	var all []error
	for _, f := range faults {
		all = append(all, &rules.Error{Pos: rules.Position{File: d.file, Line: f.Line, Column: f.Column}, Msg: f.Msg})
	}
	if dropped > 0 {
		all = append(all, &rules.Error{Pos: rules.Position{File: d.file}, Msg: fmt.Sprintf("%d more errors", dropped)})
	}
	return errors.Join(all...)
}

func (d *decoder) at(n *strictyaml.Node) rules.Position {
	return rules.Position{File: d.file, Line: n.Line, Column: n.Column}
}

// misplaced maps keys that people write in the wrong place to advice.
var misplaced = map[string]string{
	"requests": "move it into a test: tests: [{name: …, requests: […]}]",
	"expect":   "move it into an entry of requests: [{request: GET /, expect: allow}]",
	"request":  "move it into an entry of requests: [{request: GET /, expect: allow}]",
	"limit":    "a test file has no rules: move it to a rule file",
	"match":    "a test file has no rules: move it to a rule file",
	"domain":   "a test file has no rules: move it to a rule file",
	"cost":     "the rules determine the cost; set the attribute that they read it from",
}

func (d *decoder) decodeFile(root *strictyaml.Node, f *File) {
	fields := strictyaml.Fields[File]{
		"rules": func(f *File, n *strictyaml.Node) {
			list, _ := d.Strings(n, "rules")
			for _, item := range list {
				f.Rules = append(f.Rules, RuleFile{d.at(item), item.Text})
			}
		},
		"start": func(f *File, n *strictyaml.Node) { f.Start = d.start(n) },
		"tests": func(f *File, n *strictyaml.Node) {
			list, _ := d.Sequence(n, "tests")
			for _, item := range list {
				f.Tests = append(f.Tests, d.test(item))
			}
		},
	}
	if root.Kind == strictyaml.Null {
		d.Fault(root, "the file is empty: write tests: [{name: …, requests: [{request: GET /, expect: allow}]}]")
		return
	}
	list := root.Field("tests")
	none := list == nil || list.Kind == strictyaml.Sequence && len(list.Items) == 0
	if strictyaml.Decode(&d.Decoder, root, "the file", fields, misplaced, f) && none {
		d.Fault(root, "there are no tests: write tests: [{name: …, requests: [{request: GET /, expect: allow}]}]")
	}
}

func (d *decoder) start(n *strictyaml.Node) time.Time {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		t, err := time.Parse(layout, n.Text)
		if err == nil && t.Year() >= 1971 && t.Year() < 2200 {
			return t
		}
	}
	d.Fault(n, "start: is %s: write a time between 1971 and 2200, such as 2026-01-01T00:00:00Z", n)
	return DefaultStart
}

func (d *decoder) test(n *strictyaml.Node) Test {
	t := Test{At: d.at(n)}
	d.reserved = make(map[string]int)
	fields := strictyaml.Fields[Test]{
		"name": func(t *Test, n *strictyaml.Node) {
			t.Name, _ = d.String(n, "name")
			if line, taken := d.names[t.Name]; taken && t.Name != "" {
				d.Fault(n, "name: the test at line %d has the same name: rename one", line)
			}
			d.names[t.Name] = n.Line
		},
		"requests": func(t *Test, n *strictyaml.Node) {
			list, _ := d.Sequence(n, "requests")
			for _, item := range list {
				d.request(item, t)
			}
		},
	}
	if !strictyaml.Decode(&d.Decoder, n, "test", fields, misplaced, &t) {
		return t
	}
	if n.Field("name") == nil {
		d.Fault(n, "the test has no name: add one, such as name: two posts a second")
	}
	if list := n.Field("requests"); list == nil || list.Kind == strictyaml.Sequence && len(list.Items) == 0 {
		d.Fault(n, "the test has no requests: write requests: [{request: GET /, expect: allow}]")
	}
	return t
}
