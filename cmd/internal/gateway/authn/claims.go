package authn

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Bounds of the claims of a token.
const (
	maxClaims     = 256
	maxClaimBytes = 4 << 10 // per value
	deepestClaim  = 8       // levels of nesting
)

// flatten converts claims to texts for rules. Strings are unchanged, numbers are as in the token. Nested names are joined with
// dots: {"team": {"id": 7}} becomes team.id: 7. A list becomes its JSON, and its strings and numbers are also named by index:
// {"roles": ["a", "b"]} becomes roles: ["a","b"], roles.0: a and roles.1: b.
//
// Different tokens must not become the same texts. So a name with a dot is accepted only at the top level, where issuers use such
// names ("https://example.com/plan"), and takes precedence over a joined name.
//
// It returns nil if the claims exceed a bound.
func flatten(claims map[string]any) map[string]string {
	f := flattened{into: make(map[string]string, len(claims))}
	top := slices.Sorted(maps.Keys(claims))
	for _, dotted := range []bool{false, true} {
		for _, name := range top {
			_, several := claims[name].(map[string]any)
			if strings.Contains(name, ".") == dotted && !(several && dotted) {
				f.add(name, claims[name], 1)
			}
		}
	}
	if f.tooMuch {
		return nil
	}
	return f.into
}

type flattened struct {
	into    map[string]string
	tooMuch bool
}

func (f *flattened) add(name string, value any, depth int) {
	if f.tooMuch {
		return
	}
	switch v := value.(type) {
	case string:
		f.put(name, v)
	case json.Number:
		f.put(name, v.String())
	case bool:
		f.put(name, strconv.FormatBool(v))
	case []any:
		f.put(name, text(v))
		for i, item := range v {
			switch item.(type) {
			case string, json.Number, bool:
				f.add(name+"."+strconv.Itoa(i), item, depth+1)
			}
		}
	case map[string]any:
		if depth >= deepestClaim {
			return
		}
		for _, inner := range slices.Sorted(maps.Keys(v)) {
			if !strings.Contains(inner, ".") {
				f.add(name+"."+inner, v[inner], depth+1)
			}
		}
	}
}

func (f *flattened) put(name, value string) {
	if len(f.into) == maxClaims || len(value) > maxClaimBytes {
		if !f.tooMuch {
			bounds.Claims.Reached()
		}
		f.tooMuch = true
		return
	}
	f.into[name] = value
}

// isOne reports whether b is exactly one JSON value without duplicate names in objects. Programs differ in which of two values
// they use.
func isOne(b []byte) bool {
	d := json.NewDecoder(bytes.NewReader(b))
	if !isUnique(d) {
		return false
	}
	_, err := d.Token()
	return err == io.EOF
}

func isUnique(d *json.Decoder) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	open, nested := token.(json.Delim)
	seen := make(map[string]bool)
	for nested && d.More() {
		if open == '{' {
			name, err := d.Token()
			text, _ := name.(string)
			if err != nil || seen[text] {
				return false
			}
			seen[text] = true
		}
		if !isUnique(d) {
			return false
		}
	}
	if nested {
		_, err = d.Token()
	}
	return err == nil
}

// isText reports whether a claim, named as by flatten, is a string outside of lists.
func isText(claims map[string]any, name string) bool {
	if value, there := claims[name]; there {
		_, text := value.(string)
		return text
	}
	first, rest, nested := strings.Cut(name, ".")
	inner, _ := claims[first].(map[string]any)
	return nested && isText(inner, rest)
}

// text returns compact JSON without HTML escapes.
func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // cannot fail: decoded from JSON
	return strings.TrimSuffix(b.String(), "\n")
}
