package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goroutines is a list of all functions of the library and the programs that start a goroutine or a timer with a
// function, and how its end is awaited. Each line has the form: file.go Type.function: owner and how it waits.
const goroutines = "testdata/goroutines.txt"

// TestGoroutines compares these functions with the list. A new one needs an owner that waits for it.
func TestGoroutines(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash(goroutines))
	if err != nil {
		t.Fatal(err)
	}
	places := make(map[string]bool)
	for _, s := range sources(t) {
		if !s.isTest() && !s.ignored() && !s.apart && !beside(s.name) {
			for _, place := range starts(s) {
				places[place] = true
			}
		}
	}
	if *update {
		owners := ownersIn(string(text))
		var lines strings.Builder
		for _, place := range slices.Sorted(maps.Keys(places)) {
			fmt.Fprintf(&lines, "%s: %s\n", place, owners[place])
		}
		if err := os.WriteFile(filepath.FromSlash(goroutines), []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, fault := range checkGoroutines(places, string(text)) {
		t.Error(fault)
	}
}

// ownersIn returns the owners of the list, by function.
func ownersIn(list string) map[string]string {
	owners := make(map[string]string)
	for line := range strings.Lines(list) {
		place, owner, _ := strings.Cut(strings.TrimSpace(line), ":")
		owners[place] = strings.TrimSpace(owner)
	}
	return owners
}

// checkGoroutines returns errors for functions without an owner, and for lines about functions that no longer start
// anything.
func checkGoroutines(places map[string]bool, list string) (faults []string) {
	owners := ownersIn(list)
	for _, place := range slices.Sorted(maps.Keys(places)) {
		if owners[place] == "" {
			faults = append(faults, fmt.Sprintf("%s starts something without an owner that waits for it: let the owner wait in Close or Run, or stop the timer, and add to %s\n\t%s: <owner, and how it waits>",
				place, goroutines, place))
		}
	}
	for _, place := range slices.Sorted(maps.Keys(owners)) {
		if !places[place] {
			faults = append(faults, fmt.Sprintf("%s names %s, where nothing is started any more: remove the line", goroutines, place))
		}
	}
	return faults
}

// beside reports whether a file is not part of the library or a program: examples, and code for tests.
func beside(name string) bool {
	return strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "deploy/") || strings.HasPrefix(name, "storetest/") ||
		strings.Contains(name, "testenv/") || strings.HasPrefix(name, "cmd/internal/doctest/")
}

// starts returns the functions of a file that start goroutines, or timers with a function: go f(), group.Go(f),
// AfterFunc(d, f).
func starts(s source) (places []string) {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		place := s.name + " " + f.Name.Name
		if f.Recv != nil {
			place = s.name + " " + receiver(f) + "." + f.Name.Name
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				places = append(places, place)
			case *ast.CallExpr:
				of, ok := n.Fun.(*ast.SelectorExpr)
				if ok && (of.Sel.Name == "AfterFunc" || of.Sel.Name == "Go" && len(n.Args) == 1) {
					places = append(places, place)
				}
			}
			return true
		})
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// TestGoroutinesBite checks that violations are detected.
func TestGoroutinesBite(t *testing.T) {
	s := parse(t, "a/a.go", "package a\n\nfunc f() { go f() }\n\nfunc g() { time.AfterFunc(1, f) }\n\nfunc h() { work.Go(f) }\n\nfunc (x *T) i() { go f() }\n\nfunc j() { f() }")
	if got := strings.Join(starts(s), ", "); got != "a/a.go T.i, a/a.go f, a/a.go g, a/a.go h" {
		t.Error(got)
	}
	one := map[string]bool{"a/a.go f": true}
	compare(t, checkGoroutines(one, "a/a.go f: Close waits\n"), nil)
	compare(t, checkGoroutines(one, "a/a.go f:\n"), []string{"a/a.go f starts something"})
	compare(t, checkGoroutines(one, ""), []string{"a/a.go f starts something"})
	compare(t, checkGoroutines(nil, "a/a.go f: Close waits\n"), []string{"remove the line"})
}
