package authn

import (
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	hash := hashed("the new one's key")
	e := &Entry{ID: KeyID(hash), User: "true", Plan: "a: b", Hash: hash, Expires: "2099-01-31", Attributes: map[string]string{"team": "x y", "b": "1"}}
	old := hashed("key-of-ada")
	for name, tt := range map[string]struct{ before, want string }{
		"nothing":      {"", "keys:\n  - id: "},
		"a comment":    {"# ours\nkeys: [] # none\n", "# ours\nkeys:\n  - id: "},
		"no indent":    {"keys:\n- {user: ada, hash: '" + old + "'}", "'}\n- id: "},
		"an indent":    {"keys:\n    - user: ada\n      hash: " + old + "\n# the end\n", "# the end\n    - id: "},
		"in brackets":  {"keys: [{user: ada, hash: '" + old + "'}]\n", ""},
		"it is there":  {"keys:\n- {user: ada, hash: '" + hash + "'}\n", ""},
		"others":       {"users: []\n", ""},
		"no YAML":      {"keys: [", ""},
		"with a fault": {"keys:\n- {user: ada}\n", ""},
	} {
		got, err := Append("f", []byte(tt.before), false, e)
		if (err == nil) != (tt.want != "") || !strings.Contains(string(got), tt.want) {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
		if err != nil {
			continue
		}
		all, err := readAccounts(&keyKind, []string{"f"}, [][]byte{got})
		if err != nil {
			t.Fatal(err)
		}
		last := all[len(all)-1]
		if a := last.identity.Attributes; a["user"] != "true" || a["plan"] != "a: b" || a["team"] != "x y" || a["b"] != "1" || last.expires.Year() != 2099 {
			t.Errorf("%s: got %v", name, a)
		}
	}
	if got, err := Append("f", nil, true, &Entry{User: "ada", Hash: fakeHash(10, "a")}); err != nil || !strings.HasPrefix(string(got), "users:\n  - user: ada\n") {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCheckEntry(t *testing.T) {
	hash := hashed("x")
	for _, bad := range []Entry{
		{Hash: hash},
		{User: " ada", Hash: hash},
		{User: "ada", Hash: hash, Expires: "2001-01-01"},
		{User: "ada", Hash: hash, Expires: "soon"},
		{User: "ada", Hash: hash, Attributes: map[string]string{"user": "x"}},
		{User: "ada\n- {user: eve}", Hash: hash},
	} {
		if err := CheckEntry(&bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	for _, good := range []Entry{{User: "ada", Hash: hash}, {User: "Ada Lovelace", Plan: "größe", Hash: fakeHash(10, "a")}} {
		if err := CheckEntry(&good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

// Account files are distinguished from rule files even if they are invalid, so that their lines are not shown.
func TestIsAccountFile(t *testing.T) {
	for text, want := range map[string]bool{
		"keys: []": true, "users: []": true, "keys:\n  - canary: [": true, "# x\nusers:\n\t- a": true,
		"rules: []": false, "": false, "domain: x\nkeys: []": false, "a: [\nkeys:": true, "- keys": false, "rules: [\nkeys:": false,
	} {
		if got := IsAccountFile([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if err := Check("f", []byte("keys: [{user: ada}]")); err == nil || !strings.HasPrefix(err.Error(), "f:1:8: ") {
		t.Errorf("got %v", err)
	}
}
