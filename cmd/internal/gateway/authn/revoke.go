package authn

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
)

// KeyInfo describes an API key in an account file, without its hash.
type KeyInfo struct {
	ID         string            `json:"id"` // ID in the file, or else KeyID of the hash
	User       string            `json:"user"`
	Plan       string            `json:"plan,omitempty"`
	State      string            `json:"state"`                // active, disabled or expired
	Expires    *time.Time        `json:"expires_at,omitempty"` // nil: never
	Attributes map[string]string `json:"attributes,omitempty"`
}

// ListKeys returns the keys of an account file, in file order.
func ListKeys(path string, data []byte) ([]KeyInfo, error) {
	entries, err := readAccounts(&keyKind, []string{path}, [][]byte{data})
	if err != nil {
		return nil, err
	}
	all := make([]KeyInfo, len(entries))
	for i := range entries {
		all[i] = infoOf(&entries[i], time.Now())
	}
	return all, nil
}

func infoOf(e *entry, now time.Time) KeyInfo {
	k := KeyInfo{ID: KeyID(e.hash), User: e.identity.User, State: "active", Attributes: map[string]string{}}
	for name, value := range e.identity.Attributes {
		switch name {
		case "id":
			k.ID = value
		case "plan":
			k.Plan = value
		case "user":
		default:
			k.Attributes[name] = value
		}
	}
	if !e.expires.IsZero() {
		k.Expires = &e.expires
		if !now.Before(e.expires) {
			k.State = "expired"
		}
	}
	if e.disabled {
		k.State = "disabled"
	}
	return k
}

// Revoke removes a key from the content of an account file. The name is the key's ID, a unique prefix of it, or a user with a
// single key. The rest of the file is unchanged, including comments.
func Revoke(path string, data []byte, name string) ([]byte, KeyInfo, error) {
	all, err := ListKeys(path, data)
	if err != nil {
		return nil, KeyInfo{}, err
	}
	i, err := pick(all, name)
	if err != nil {
		return nil, KeyInfo{}, err
	}
	root, _ := strictyaml.Parse(data) // cannot fail: already read
	items := root.Field(keyKind.list).Items
	lines := bytes.SplitAfter(data, []byte("\n"))
	first, end := items[i].Line-1, len(lines)
	if i+1 < len(items) {
		end = items[i+1].Line - 1
	}
	// Comments before the next entry belong to it.
	for end > first+1 && (len(bytes.TrimSpace(lines[end-1])) == 0 || bytes.HasPrefix(bytes.TrimSpace(lines[end-1]), []byte("#"))) {
		end--
	}
	left := bytes.Join(slices.Concat(lines[:first], lines[end:]), nil)
	if len(items) == 1 {
		left = bytes.Replace(left, []byte(keyKind.list+":"), []byte(keyKind.list+": []"), 1)
	}
	revoked := all[i]
	after, err := ListKeys(path, left)
	if err != nil || !slices.EqualFunc(after, slices.Delete(all, i, i+1), func(a, b KeyInfo) bool { return a.ID == b.ID && a.User == b.User }) {
		return nil, KeyInfo{}, errors.New("the list in the file is not in block style, with one entry after each -: remove the entry by hand")
	}
	return left, revoked, nil
}

// pick returns the index of the key that a name matches.
func pick(all []KeyInfo, name string) (int, error) {
	var ids, found []string
	at := -1
	for i := range all {
		k := &all[i]
		ids = append(ids, k.ID)
		if k.ID == name {
			return i, nil
		}
		if k.User == name || strings.HasPrefix(k.ID, name) {
			at, found = i, append(found, k.ID)
		}
	}
	switch {
	case len(found) == 1:
		return at, nil
	case len(found) > 1:
		return 0, fmt.Errorf("%q matches %d keys: write one of %s", name, len(found), strings.Join(found[:min(len(found), 10)], ", "))
	}
	if best := suggest.Closest(name, ids); best != "" {
		return 0, fmt.Errorf("there is no key %q: did you mean %q?", name, best)
	}
	return 0, fmt.Errorf("there is no key %q: sluice apikey list shows their ids", name)
}
