package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

const memcached = `
store: {kind: memcached, addresses: ["127.0.0.1:11211"]}
`

// An old key gives exactly one error, at its position, that names the new key. In a valid file the old key replaces the new one:
// alone, and together with the old names of its sections.
func TestRenamed(t *testing.T) {
	table := map[string]string{}
	for _, r := range config.Renamed() {
		table[r[0]] = r[1]
	}
	for old, now := range table {
		text := ""
		for _, valid := range []string{all, redis, outside, memcached} {
			if keyAt(t, valid, now) != nil {
				text = valid
			}
		}
		if text == "" {
			t.Errorf("%s: no valid file has %s", old, now)
			continue
		}
		oldParts, newParts := strings.Split(old, "."), strings.Split(now, ".")
		if len(oldParts) != len(newParts) {
			t.Fatalf("%s: %s is in another section", old, now)
		}
		last := len(newParts) - 1
		alone := strings.Join(append(newParts[:last:last], oldParts[last]), ".")
		checkRenamed(t, replaceKey(t, text, now, oldParts[last]), map[string]string{alone: now})

		want := map[string]string{}
		for i := last; i >= 0; i-- { // the sections after the keys in them, which are found by the sections' new names
			if oldParts[i] != newParts[i] {
				text = replaceKey(t, text, strings.Join(newParts[:i+1], "."), oldParts[i])
				want[strings.Join(oldParts[:i+1], ".")] = strings.Join(newParts[:i+1], ".")
			}
		}
		for path, name := range want {
			if table[path] != name {
				t.Errorf("%s: the table has %q for %s, want %s", old, table[path], path, name)
			}
		}
		checkRenamed(t, text, want)
	}
}

// checkRenamed checks that the errors of a file are those of the renamed keys and no others.
func checkRenamed(t *testing.T, text string, want map[string]string) {
	t.Helper()
	var lines []string
	for old, now := range want {
		key := keyAt(t, text, old)
		if key == nil {
			t.Fatalf("%s is not in\n%s", old, text)
		}
		named := func(path string) string { return strings.Replace(path, "*", "api", 1) }
		lines = append(lines, fmt.Sprintf("f:%d:%d: %s: renamed: write %s", key.Line, key.Column, named(old), named(now)))
	}
	_, err := config.Parse("f", []byte(text), noEnv)
	if err == nil {
		t.Errorf("%v: no error", want)
		return
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(lines) {
		t.Errorf("%v: got\n%v", want, err)
	}
	for _, line := range lines {
		if !strings.Contains("\n"+err.Error()+"\n", "\n"+line+"\n") {
			t.Errorf("got\n%v\nwant\n%s", err, line)
		}
	}
}

// keyAt returns the key with a path in the first upstream, route or certificate of a file, or nil.
func keyAt(t *testing.T, text, path string) *strictyaml.Node {
	t.Helper()
	n, found := strictyaml.Parse([]byte(text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	var key *strictyaml.Node
	for part := range strings.SplitSeq(path, ".") {
		if n.Kind == strictyaml.Sequence {
			n = n.Items[0]
		}
		key = nil
		for _, f := range n.Fields {
			if f.Key.Text == part || part == "*" {
				key, n = f.Key, f.Value
				break
			}
		}
		if key == nil {
			return nil
		}
	}
	return key
}

// replaceKey replaces the last key of a path.
func replaceKey(t *testing.T, text, path, key string) string {
	t.Helper()
	n := keyAt(t, text, path)
	if n == nil {
		t.Fatalf("%s is not in\n%s", path, text)
	}
	lines := strings.Split(text, "\n")
	line := lines[n.Line-1]
	lines[n.Line-1] = line[:n.Column-1] + key + line[n.Column-1+len(n.Text):]
	return strings.Join(lines, "\n")
}

// No key of today is an old one, and every new name in the table is a key or a section.
func TestRenamedAreNotKeys(t *testing.T) {
	keys := map[string]bool{}
	for _, path := range config.KeyPaths() {
		for path != "" {
			keys[path] = true
			path = path[:max(0, strings.LastIndexByte(path, '.'))]
		}
	}
	for _, r := range config.Renamed() {
		if keys[r[0]] {
			t.Errorf("%s is a key", r[0])
		}
		if !keys[r[1]] {
			t.Errorf("%s is no key", r[1])
		}
	}
}

// A file with sections of old names only is taken for a configuration, so that its errors are about the sections.
func TestRenamedSection(t *testing.T) {
	for _, text := range []string{"auth: {max_wait: 1s}\n", "check: {refund_token_file: t}\n"} {
		if !config.IsServiceConfig([]byte(text)) {
			t.Errorf("%q does not look like a configuration", text)
		}
	}
	_, err := config.Parse("f", []byte("auth: {max_wait: 1s, foo: 1}\n"), noEnv)
	if want := "f:1:1: auth: renamed: write forward_auth\nf:1:8: auth.max_wait: renamed: write forward_auth.max_delay\nf:1:22: auth: there is no key \"foo\": use max_delay"; err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
