package authn

import (
	"strings"
	"testing"
)

// All lines except the revoked entry are unchanged.
func TestRevoke(t *testing.T) {
	ada, bob := hashed("key-of-ada"), hashed("key-of-bob")
	for name, tt := range map[string]struct{ before, key, after string }{
		"first":        {"# ours\nkeys:\n  # of ada\n  - user: ada\n    hash: " + ada + "\n\n  # of bob\n  - {user: bob, hash: '" + bob + "'}\n", "ada", "# ours\nkeys:\n  # of ada\n\n  # of bob\n  - {user: bob, hash: '" + bob + "'}\n"},
		"last":         {"keys:\n- {user: ada, hash: '" + ada + "'}\n- user: bob\n  hash: " + bob + "\n# end\n", KeyID(bob), "keys:\n- {user: ada, hash: '" + ada + "'}\n# end\n"},
		"only":         {"keys:\n- {user: ada, id: a1, hash: '" + ada + "'}\n", "a1", "keys: []\n"},
		"in brackets":  {"keys: [{user: ada, hash: '" + ada + "'}, {user: bob, hash: '" + bob + "'}]\n", "ada", ""},
		"unknown":      {"keys:\n- {user: ada, hash: '" + ada + "'}\n", "eve", ""},
		"several":      {"keys:\n- {user: ada, hash: '" + ada + "'}\n- {user: ada, hash: '" + bob + "'}\n", "ada", ""},
		"with a fault": {"keys:\n- {user: ada}\n", "ada", ""},
	} {
		got, k, err := Revoke("f", []byte(tt.before), tt.key)
		if string(got) != tt.after || (err == nil) != (tt.after != "") {
			t.Errorf("%s: %v, %v\n%s", name, k, err, got)
		}
		if err != nil && (strings.Contains(err.Error(), ada) || strings.Contains(err.Error(), bob)) {
			t.Errorf("%s shows a hash: %v", name, err)
		}
	}
	all, err := ListKeys("f", []byte("keys:\n- {user: ada, plan: pro, expires: 2001-01-01, attributes: {team: a}, hash: '"+ada+"'}\n- {user: bob, disabled: true, hash: '"+bob+"'}\n"))
	if err != nil || len(all) != 2 || all[0].State != "expired" || all[0].Plan != "pro" || all[0].Attributes["team"] != "a" || all[1].State != "disabled" || all[1].ID != KeyID(bob) {
		t.Errorf("%+v, %v", all, err)
	}
}
