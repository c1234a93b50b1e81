package authn

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// An account file is a list of mappings below one key. Errors never contain parts of the file, because these could be secrets in
// the wrong place, and errors are logged.

// kind is a kind of account file: keys or users.
type kind struct {
	list   string // key of the list
	one    string // name of an entry in errors
	hash   func(text string) (fault string)
	secret map[string]string // keys under which people may write secrets, and the advice for each
	unique bool              // users must be unique
}

// entry is an account in a file.
type entry struct {
	account
	hash         string
	line, column int
	file         string
}

func (e *entry) at() string {
	return rules.Position{File: e.file, Line: e.line, Column: e.column}.String()
}

var accountKeys = []string{"attributes", "disabled", "expires", "hash", "id", "plan", "user"}

// reader reads one file.
type reader struct {
	kind   *kind
	file   string
	faults []error
}

func (r *reader) fault(at *strictyaml.Node, format string, args ...any) {
	const maxErrors = 100 // more are usually the same mistake repeated
	if len(r.faults) < maxErrors {
		r.faults = append(r.faults, &rules.Error{
			Pos: rules.Position{File: r.file, Line: at.Line, Column: at.Column}, Msg: fmt.Sprintf(format, args...),
		})
	}
}

// readAccounts reads all files of a kind. Its error joins all errors of the files, each a [*rules.Error].
func readAccounts(k *kind, paths []string, content [][]byte) ([]entry, error) {
	var all []entry
	var faults []error
	hashes, users := map[string]*entry{}, map[string]*entry{}
	for i, path := range paths {
		r := reader{kind: k, file: path}
		for _, e := range r.read(content[i]) {
			at := strictyaml.Node{Line: e.line, Column: e.column}
			if first := hashes[e.hash]; first != nil {
				r.fault(&at, "duplicate hash, first at %s: remove one", first.at())
			} else if first := users[e.identity.User]; first != nil && k.unique {
				r.fault(&at, "duplicate user, first at %s: remove one", first.at())
			}
			hashes[e.hash], users[e.identity.User] = &e, &e
			all = append(all, e)
		}
		faults = append(faults, r.faults...)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return all, nil
}

func (r *reader) read(data []byte) []entry {
	root, found := strictyaml.Parse(data)
	for _, f := range found {
		r.fault(&strictyaml.Node{Line: f.Line, Column: f.Column}, "%s", discreet(f))
	}
	if len(found) > 0 {
		return nil
	}
	if root.Kind != strictyaml.Mapping || len(root.Fields) == 0 {
		r.fault(root, "the file has no %s: write %s: and below it a list, of entries such as - {user: ada, hash: …}", r.kind.list, r.kind.list)
		return nil
	}
	var all []entry
	for _, f := range root.Fields {
		switch {
		case f.Key.Text != r.kind.list:
			r.fault(f.Key, "there is no such key: use %s", r.kind.list)
		case f.Value.Kind == strictyaml.Null: // otherwise a half-written file would remove all accounts
			r.fault(f.Value, "%s: is empty: write a list, or [] for none", r.kind.list)
		case f.Value.Kind != strictyaml.Sequence:
			r.fault(f.Value, "%s: write a list, each entry after a - and a space", r.kind.list)
		default:
			for _, n := range f.Value.Items {
				if e, ok := r.entry(n); ok {
					all = append(all, e)
				}
			}
		}
	}
	return all
}

// discreet returns the text of a YAML error without parts of the file.
func discreet(f strictyaml.Fault) string {
	switch f.Reason {
	case strictyaml.TooLarge:
		return f.Msg
	case strictyaml.Duplicate:
		return "this key stands here twice: remove one"
	case strictyaml.KeyType:
		return "this key is not text: write a word, such as user, and quote a text that looks like something else"
	}
	return "this cannot be read as YAML: indent with spaces, and quote values with signs such as : # * & ! % @ in them"
}

func (r *reader) unknown(key *strictyaml.Node, known []string) {
	if advice := r.kind.secret[key.Text]; advice != "" {
		r.fault(key, "%s", advice)
	} else if best := suggest.Closest(key.Text, known); best != "" {
		r.fault(key, "there is no such key: did you mean %q?", best)
	} else {
		r.fault(key, "there is no such key: use %s", strictyaml.Words(known))
	}
}

func (r *reader) entry(n *strictyaml.Node) (entry, bool) {
	e := entry{line: n.Line, column: n.Column, file: r.file}
	if n.Kind != strictyaml.Mapping {
		r.fault(n, "%s: write a mapping, such as {user: ada, hash: …}", r.kind.one)
		return e, false
	}
	before := len(r.faults)
	attributes := map[string]string{}
	for _, f := range n.Fields {
		switch name := f.Key.Text; name {
		case "hash":
			e.hash = r.hash(f.Value)
		case "user", "plan", "id":
			if v, ok := r.value(f.Value, name); ok {
				attributes[name] = v
			}
		case "expires":
			e.expires = r.expires(f.Value)
		case "disabled":
			e.disabled = r.disabled(f.Value)
		case "attributes":
			r.attributes(f.Value, attributes)
		default:
			r.unknown(f.Key, accountKeys)
		}
	}
	if len(r.faults) > before {
		return e, false
	}
	for _, name := range []string{"user", "hash"} {
		if n.Field(name) == nil {
			r.fault(n, "%s has no %s: write one", r.kind.one, name)
			return e, false
		}
	}
	e.identity = Identity{User: attributes["user"], Attributes: attributes}
	return e, true
}

func (r *reader) hash(n *strictyaml.Node) string {
	fault := r.kind.hash("")
	if n.Kind == strictyaml.Scalar {
		fault = r.kind.hash(n.Text)
	}
	if fault != "" {
		r.fault(n, "%s", fault)
	}
	return n.Text
}

// value reads a text that may become an attribute and a header value.
func (r *reader) value(n *strictyaml.Node, what string) (string, bool) {
	const most = 256
	switch {
	case n.Kind != strictyaml.Scalar || n.Text == "":
		r.fault(n, "%s: write one value, or remove it", what)
	case len(n.Text) > most:
		r.fault(n, "%s: write at most %d bytes", what, most)
	case !sendable(n.Text):
		r.fault(n, "%s: write it without spaces around it, and without line breaks", what)
	default:
		return n.Text, true
	}
	return "", false
}

func (r *reader) expires(n *strictyaml.Node) time.Time {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, n.Text); err == nil && n.Kind == strictyaml.Scalar {
			return at
		}
	}
	r.fault(n, "expires: write the expiry date (UTC) or time, such as 2027-01-31 or 2027-01-31T18:00:00Z")
	return time.Time{}
}

func (r *reader) disabled(n *strictyaml.Node) bool {
	if n.Kind != strictyaml.Scalar || n.Quoted || n.Text != "true" && n.Text != "false" {
		r.fault(n, "disabled: write true or false, without quotes")
	}
	return n.Text == "true"
}

var attributeName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

func (r *reader) attributes(n *strictyaml.Node, into map[string]string) {
	if n.Kind != strictyaml.Mapping {
		r.fault(n, "attributes: write a mapping, such as {team: search}")
		return
	}
	for _, f := range n.Fields {
		name := f.Key.Text
		switch {
		case slices.Contains(accountKeys, name):
			r.fault(f.Key, "attributes: write %s next to attributes, not in it", name)
		case !attributeName.MatchString(name):
			r.fault(f.Key, "attributes: write names of letters, digits and _ . - that begin with a letter")
		default:
			if v, ok := r.value(f.Value, "attributes: "+name); ok {
				into[name] = v
			}
		}
	}
}
