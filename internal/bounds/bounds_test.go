package bounds

import (
	"bytes"
	"context"
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "write the tables of docs/bounds.md")

func TestList(t *testing.T) {
	names := map[string]bool{}
	groups := map[string]bool{}
	last := ""
	for _, b := range All() {
		if !regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`).MatchString(b.Name) || names[b.Name] {
			t.Errorf("bound %q: the name must be in lower case with underscores, and in the list once", b.Name)
		}
		if b.Default == "" || b.Result == "" {
			t.Errorf("bound %q has no default or no result", b.Name)
		}
		if b.Group != last && groups[b.Group] {
			t.Errorf("bound %q: group %q is in the list twice; bounds of one group stand together", b.Name, b.Group)
		}
		names[b.Name], groups[b.Group], last = true, true, b.Group
	}
}

func TestPage(t *testing.T) {
	const file = "../../docs/bounds.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), pageBegin)
	_, after, ok2 := strings.Cut(rest, pageEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no generated part", file)
	}
	want := before + pageBegin + page() + pageEnd + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is stale: go generate ./internal/bounds", file)
	}
}

// A bound that is reached all the time is logged once per minute, and the counts add up.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute+500*time.Millisecond)
		defer stop()
		go func() {
			for range 1800 {
				<-time.After(100 * time.Millisecond) // Log counts from its start
				Connections.Reached()
			}
		}()
		Log(ctx, slog.New(slog.NewTextHandler(&out, nil)))
		lines, sum := regexp.MustCompile(`bound=connections times=(\d+)`).FindAllStringSubmatch(out.String(), -1), 0
		for _, line := range lines {
			n, _ := strconv.Atoi(line[1])
			sum += n
		}
		if len(lines) != 4 || sum != 1800 {
			t.Errorf("%d lines about %d times in three minutes, want 3 and one at the end about 1800:\n%s", len(lines), sum, out.String())
		}
		synctest.Wait()
	})
}

// Every counted bound is counted somewhere in the code, and no other.
func TestCounted(t *testing.T) {
	list, err := os.ReadFile("list.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	variables := regexp.MustCompile(`(?m)^\t(\w+) = add\(\w+, &Bound\{\n\t\tName: "(\w+)"`).FindAllStringSubmatch(string(list), -1)
	if len(variables) != len(All()) {
		t.Fatalf("%d variables are found and %d bounds", len(variables), len(All()))
	}
	for i, b := range All() {
		if variables[i][2] != b.Name {
			t.Fatalf("%s is not %s", variables[i][2], b.Name)
		}
		if counted := strings.Contains(code.String(), "."+variables[i][1]+".Reached()"); counted != (b.Elsewhere == "") {
			t.Errorf("%s: calls of Reached: %v; the metric elsewhere: %q", b.Name, counted, b.Elsewhere)
		}
	}
}

// The settings that raise bounds exist.
func TestSettings(t *testing.T) {
	var docs strings.Builder
	for _, name := range []string{"settings.md", "gateway.md", "upstreams.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		docs.Write(text)
	}
	for _, b := range All() {
		setting := strings.Replace(b.Setting, ".*.", ".gateway.", 1)
		if key, ok := strings.CutPrefix(setting, "gateway.routes."); ok {
			setting = key
		} else if key, ok := strings.CutPrefix(setting, "gateway.upstreams."); ok {
			setting = key
		}
		if setting != "" && !regexp.MustCompile("(?m)^\\| `"+regexp.QuoteMeta(setting)+"[`.]").MatchString(docs.String()) {
			t.Errorf("%s: there is no setting %s", b.Name, b.Setting)
		}
	}
}
