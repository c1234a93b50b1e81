package authn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Entry is a new entry of an account file.
type Entry struct {
	ID         string            `json:"id,omitempty"`
	User       string            `json:"user"`
	Plan       string            `json:"plan,omitempty"`
	Hash       string            `json:"hash"`
	Expires    string            `json:"expires,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// KeyID returns an ID for a key that reveals nothing about it.
func KeyID(hash string) string { return "k-" + strings.TrimPrefix(hash, hashPrefix)[:8] }

var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._@-]*$`)

// scalar returns a YAML scalar that is read as the string s.
func scalar(s string) string {
	if plain.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	b, _ := json.Marshal(s) // JSON strings are valid YAML
	return string(b)
}

// YAML returns the entry as in a file, with each line indented.
func (e *Entry) YAML(indent string) string {
	var b strings.Builder
	lead := indent + "- "
	put := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", lead, name, value)
			lead = indent + "  "
		}
	}
	if e.ID != "" {
		put("id", scalar(e.ID))
	}
	put("user", scalar(e.User))
	if e.Plan != "" {
		put("plan", scalar(e.Plan))
	}
	if checkKeyHash(e.Hash) == "" {
		put("hash", e.Hash)
	} else {
		put("hash", scalar(e.Hash))
	}
	put("expires", e.Expires)
	if len(e.Attributes) > 0 {
		var all []string
		for name, value := range e.Attributes {
			all = append(all, scalar(name)+": "+scalar(value))
		}
		slices.Sort(all)
		put("attributes", "{"+strings.Join(all, ", ")+"}")
	}
	return b.String()
}

// Append adds an entry to the content of an account file of keys or users, which may be empty.
func Append(path string, data []byte, users bool, e *Entry) ([]byte, error) {
	k := &keyKind
	if users {
		k = &userKind
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte(k.list + ":\n")
		return finish(k, path, append(data, e.YAML("  ")...), 0, e)
	}
	before, err := readAccounts(k, []string{path}, [][]byte{data})
	if err != nil {
		return nil, err
	}
	root, _ := strictyaml.Parse(data) // cannot fail: already read
	list := root.Field(k.list)
	if len(list.Items) == 0 {
		i := bytes.LastIndex(data, []byte("[]"))
		if i < 0 {
			return nil, errByHand
		}
		data = bytes.TrimRight(data[:i], " ")
		return finish(k, path, append(append(data, '\n'), e.YAML("  ")...), 0, e)
	}
	line := bytes.Split(data, []byte("\n"))[list.Items[0].Line-1]
	indent, dash := bytes.CutSuffix(line[:max(0, bytes.IndexByte(line, '-')+1)], []byte("-"))
	if !dash || len(bytes.TrimLeft(indent, " ")) > 0 {
		return nil, errByHand // flow style: [{…}, {…}]
	}
	if !bytes.HasSuffix(data, []byte("\n")) {
		data = append(slices.Clip(data), '\n')
	}
	return finish(k, path, append(slices.Clip(data), e.YAML(string(indent))...), len(before), e)
}

var errByHand = errors.New("the list in the file is not in block style, with one entry after each -: add the entry by hand")

// finish checks the new content of a file.
func finish(k *kind, path string, data []byte, before int, e *Entry) ([]byte, error) {
	after, err := readAccounts(k, []string{path}, [][]byte{data})
	if err != nil {
		return nil, err
	}
	if len(after) != before+1 || after[before].hash != e.Hash || after[before].identity.User != e.User {
		return nil, errByHand
	}
	return data, nil
}

// CheckEntry checks an entry without its file.
func CheckEntry(e *Entry) error {
	if e.Expires != "" {
		if at, err := time.Parse(time.DateOnly, e.Expires); err == nil && at.Before(time.Now()) {
			return fmt.Errorf("expires: %s is in the past", e.Expires)
		}
	}
	k := &keyKind
	if checkKeyHash(e.Hash) != "" {
		k = &userKind
	}
	_, err := readAccounts(k, []string{"entry"}, [][]byte{[]byte(k.list + ":\n" + e.YAML("  "))})
	return err
}
