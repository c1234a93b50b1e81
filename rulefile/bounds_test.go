package rulefile_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
)

// A mistake that occurs very often is reported at most 1000 times, and quickly: the search for suggestions is bounded
// too.
func TestManyFaults(t *testing.T) {
	var b strings.Builder
	b.WriteString("attributes:\n")
	for i := range 8_000 {
		fmt.Fprintf(&b, "  attribute%d: {jwt: sub}\n", i)
	}
	attributes := b.String()
	b.Reset()
	b.WriteString("allow:\n")
	for i := range 8_000 {
		fmt.Fprintf(&b, "- {atribute%d: x}\n", i)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := rulefile.Parse(rulefile.Options{},
		rulefile.File{Name: "a.yaml", Data: []byte(attributes)}, rulefile.File{Name: "b.yaml", Data: []byte(b.String())})
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("no error")
	}
	checkFaults(t, "many", err)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 1001 || !strings.Contains(lines[1000], "more errors follow") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 512<<20 {
		t.Errorf("allocated %d MiB", used>>20)
	}
}

func TestManyUnknownKeys(t *testing.T) {
	var b strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&b, "key%d: x\n", i)
	}
	for _, text := range []string{b.String(), "domain: x\n" + b.String()} {
		_, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "a.yaml", Data: []byte(text)})
		if err == nil {
			t.Fatal("no error")
		}
		if n := strings.Count(err.Error(), "\n"); n > 1001 {
			t.Errorf("%d faults", n)
		}
	}
}

// A file that grows by aliases of aliases is rejected before it is expanded.
func TestBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("lists:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "a.yaml", Data: []byte(b.String())})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "more than 100000 values") {
		t.Errorf("got %v", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
		t.Errorf("allocated %d bytes", used)
	}
}

func TestTooManySources(t *testing.T) {
	files := make([]rulefile.File, rulefile.MaxFiles+1)
	files[rulefile.MaxFiles].Name = "last.yaml"
	_, err := rulefile.Parse(rulefile.Options{}, files...)
	if err == nil || !strings.Contains(err.Error(), "last.yaml: 1001 files: at most 1000 are read") {
		t.Errorf("got %v", err)
	}
	_, err = rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "a.yaml", Data: make([]byte, 1<<20+1)})
	if err == nil || !strings.Contains(err.Error(), "a.yaml:1:1: the file has 1048577 bytes") {
		t.Errorf("got %v", err)
	}
	if cfg, err := rulefile.Parse(rulefile.Options{}); err != nil || len(cfg.Rules) != 0 {
		t.Errorf("nothing at all: %v", err)
	}
}
