package rulefile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// A bug in the code that reads rules rejects a file, with its name, the rule and the stack; the previous rules stay
// live.
func TestPanicRefusesLoad(t *testing.T) {
	ruleFields["cursed"] = func(*ruleDecoder, *strictyaml.Node) { panic("a bug") }
	t.Cleanup(func() { delete(ruleFields, "cursed") })
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := ReadFiles
	write(testRules("one"))
	w, err := NewWatcher(WatchConfig{Paths: []string{file}, Debounce: 1, Read: func(paths ...string) ([]File, error) {
		return read(paths...)
	}})
	if err != nil {
		t.Fatal(err)
	}
	set := w.Set()
	refused := func(want string) {
		t.Helper()
		err := w.Reload()
		var p *panics.Error
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.As(err, &p) || !strings.Contains(string(p.Stack), "panic_internal_test.go") {
			t.Fatalf("the load is %v with the stack %s: want %s…", err, p, want)
		}
		if w.Set() != set || w.Status().LastError == nil {
			t.Fatal("the rules before it are not live any more")
		}
	}
	write("rules:\n  - {name: first, limit: 1/s}\n  - {name: second, limit: 1/s, cursed: true}\n")
	refused(file + `:3:5: rule "second": internal error: a bug`)
	read = func(...string) ([]File, error) { panic("another bug") }
	refused(file + `: internal error: another bug`)
	read = ReadFiles
	write(testRules("two"))
	if err := w.Reload(); err != nil || w.Set() == set {
		t.Fatalf("a valid file after that: %v", err)
	}
}
