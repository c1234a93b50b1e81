package bounds

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"os"
	"regexp"
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

// One line a minute for a bound that is reached all the time, and its counts add up.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute+500*time.Millisecond)
		defer stop()
		go func() {
			for range 1800 {
				Connections.Reached()
				<-time.After(100 * time.Millisecond)
			}
		}()
		Log(ctx, slog.New(slog.NewTextHandler(&out, nil)))
		if n := strings.Count(out.String(), "bound=connections"); n != 3 {
			t.Errorf("%d lines in three minutes, want 3:\n%s", n, out.String())
		}
		synctest.Wait()
	})
}
