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

// Bounds of what a token says.
const (
	maxClaims     = 256
	maxClaimBytes = 4 << 10 // of one value
	deepestClaim  = 8       // names
)

// flatten makes texts of claims, so that rules can be about them. Texts are as they are, numbers as they were written.
// What is inside another has both names: {"team": {"id": 7}} is team.id: 7. A list is its JSON, and its texts and numbers
// have their place as a name: {"roles": ["a", "b"]} is roles: ["a","b"], roles.0: a and roles.1: b.
//
// Two different tokens are two different sets of texts, as far as they go: a name with a dot in it is taken only at the top,
// where issuers use such ("https://example.com/plan"), and counts more than one that is made of several.
//
// It returns nil if there is too much of it.
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

// isOne reports whether JSON is one value, without anything behind it, in which no object has a name twice: programs differ
// in which of two they take.
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

// isText reports whether a claim, named as flatten names it, is a string that stands in no list.
func isText(claims map[string]any, name string) bool {
	if value, there := claims[name]; there {
		_, text := value.(string)
		return text
	}
	first, rest, nested := strings.Cut(name, ".")
	inner, _ := claims[first].(map[string]any)
	return nested && isText(inner, rest)
}

// text is JSON without spaces, and without escapes that only HTML needs.
func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it was JSON
	return strings.TrimSuffix(b.String(), "\n")
}
