package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// typed runs a command with the given standard input.
func typed(t *testing.T, in string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	root := rootCommand(&out, &err)
	root.SetIn(strings.NewReader(in))
	root.SetArgs(args)
	if e := root.ExecuteContext(t.Context()); e != nil {
		return term.ExitWrong, out.String(), err.String() + e.Error()
	}
	return term.ExitFine, out.String(), err.String()
}

// The gateway accepts a new key, and the key occurs only in the output of the command.
func TestAPIKeyNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	var keys []string
	for _, user := range []string{"ada", "bob", "on"} {
		code, out, stderr := sluiceRun(t, "apikey", "new", "--user", user, "--plan", "pro", "--attribute", "team=a b", "-f", file, "-o", "json")
		var m newAccount
		if err := json.Unmarshal([]byte(out), &m); err != nil || code != term.ExitFine || m.File != file {
			t.Fatalf("exit %d, %s%s", code, out, stderr)
		}
		keys = append(keys, m.Key)
	}
	k, err := authn.NewKeys(authn.KeysConfig{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	for i, user := range []string{"ada", "bob", "on"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Api-Key", keys[i])
		id, err := k.Authenticate(r)
		if err != nil || id.User != user || id.Attributes["plan"] != "pro" || id.Attributes["team"] != "a b" || id.Attributes["id"] == "" {
			t.Errorf("%s: %v, %v", user, id, err)
		}
		if strings.Contains(read(t, file), keys[i]) {
			t.Error("the file contains the key itself")
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if code, out, _ := sluiceRun(t, "check", file); code != term.ExitFine {
		t.Errorf("check: exit %d\n%s", code, out)
	}
	// The mode of a file is kept. If the file cannot be written, no key is printed.
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := sluiceRun(t, "apikey", "new", "--user", "eve", "-f", file); code != term.ExitFine {
		t.Error(stderr)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	code, out, stderr := sluiceRun(t, "apikey", "new", "--user", "eve", "-f", filepath.Join(file, "x"))
	if code != term.ExitWrong || strings.Contains(out+stderr, "slk_") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
}

func TestAPIKeyHash(t *testing.T) {
	const key = "canary-0123456789abcdef0123456789"
	want, err := authn.HashKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{key, key + "\n", key + "\r\nmore"} {
		if _, out, stderr := typed(t, in, "apikey", "hash"); out != want+"\n" {
			t.Errorf("%q: got %s%s", in, out, stderr)
		}
	}
	if _, out, _ := typed(t, key, "apikey", "hash", "-o", "json"); !strings.Contains(out, `"hash": "`+want+`"`) {
		t.Errorf("got %s", out)
	}
	for _, in := range []string{"", "\n", "canary", " " + key} {
		if code, out, stderr := typed(t, in, "apikey", "hash"); code != term.ExitWrong || strings.Contains(out+stderr, "canary") {
			t.Errorf("%q: exit %d, %s%s", in, code, out, stderr)
		}
	}
}

func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.yaml")
	code, out, stderr := typed(t, "canary horse\n", "password", "--user", "ada", "--plan", "pro", "--cost", "10", "-f", file, "-o", "json")
	var m newAccount
	if err := json.Unmarshal([]byte(out), &m); err != nil || code != term.ExitFine || m.Key != "" {
		t.Fatalf("exit %d, %s%s", code, out, stderr)
	}
	if cost, err := bcrypt.Cost([]byte(m.Entry.Hash)); cost != 10 || err != nil {
		t.Errorf("the hash costs %d, %v", cost, err)
	}
	b, err := authn.NewBasic(authn.BasicConfig{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth("ada", "canary horse")
	if id, err := b.Authenticate(r); err != nil || id.User != "ada" {
		t.Errorf("got %v, %v", id, err)
	}
	for _, args := range [][]string{{"--user", "ada", "--cost", "9"}, {"--user", "ada:x", "--cost", "20"}, {}} {
		code, out, stderr := typed(t, "canary horse\n", append([]string{"password"}, args...)...)
		if code != term.ExitWrong || strings.Contains(out+stderr, "canary") {
			t.Errorf("%q: exit %d, %s%s", args, code, out, stderr)
		}
	}
	if code, out, stderr := typed(t, "canary\n", "password", "--user", "ada"); code != term.ExitWrong || strings.Contains(out+stderr, "canary") {
		t.Errorf("a short key: exit %d, %s%s", code, out, stderr)
	}
}
