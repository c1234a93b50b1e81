package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A source is one parsed Go file.
type source struct {
	name  string // slash-separated, relative to the root of the repository
	apart bool   // in a module outside the workspace, which mayImport does not cover
	fset  *token.FileSet
	file  *ast.File
}

func (s source) folder() string { return path.Dir(s.name) }

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s source) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(pos).Line)
}

// ignored reports whether the file is a separate program, such as a generator, that is not part of its folder's
// package.
func (s source) ignored() bool {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if c.Text == "//go:build ignore" {
				return true
			}
		}
	}
	return false
}

func parse(t *testing.T, name, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{name: name, fset: fset, file: file}
}

// sources parses every Go file of the repository, in all modules.
func sources(t *testing.T) (all []source) {
	t.Helper()
	top := root(t)
	var apart []string // folders of modules outside the workspace
	together := workspace(t)
	err := filepath.WalkDir(top, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, full)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		switch base := d.Name(); {
		case name == ".":
		case d.IsDir():
			if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") ||
				slices.Contains([]string{"testdata", "vendor", "node_modules"}, base) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(full, "go.mod")); err == nil && !slices.Contains(together, name) {
				apart = append(apart, name+"/")
			}
		case strings.HasSuffix(base, ".go") && !strings.HasPrefix(base, ".") && !strings.HasPrefix(base, "_"):
			text, err := os.ReadFile(full)
			if err != nil {
				return err
			}
			s := parse(t, name, string(text))
			s.apart = slices.ContainsFunc(apart, func(m string) bool { return strings.HasPrefix(name, m) })
			all = append(all, s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// houseRules are the house rules. Each gets all files and returns the violations.
var houseRules = map[string]func([]source) []string{
	"declared":         checkDeclared,
	"nested libraries": checkNestedLibraries,
	"package comments": checkPackageComments,
	"package names":    checkPackageNames,
	"no sleeping":      checkSleep,
	"nothing left":     checkUnfinished,
	"thin commands":    checkThinCommands,
}

func TestHouseRules(t *testing.T) {
	all := sources(t)
	for name, check := range houseRules {
		t.Run(name, func(t *testing.T) {
			for _, fault := range check(all) {
				t.Error(fault)
			}
		})
	}
}

// checkDeclared returns undeclared folders that go list omits, because all their files are for other systems or behind
// a build tag.
func checkDeclared(all []source) (faults []string) {
	seen := map[string]bool{}
	for _, s := range all {
		name := s.folder()
		if s.apart || seen[name] {
			continue
		}
		seen[name] = true
		if _, ok := mayImport[name]; !ok {
			faults = append(faults, undeclared(name))
		}
	}
	return faults
}

// nestedLibraries are the folders of modules that a program may combine with another version of the root module.
var nestedLibraries = []string{"examples", "grpclimit", "redisstore/goredis"}

// checkNestedLibraries returns imports of internal packages, which another version of the root module may lack. This
// includes tests, because go mod tidy of a program reads the tests of the packages that it imports.
func checkNestedLibraries(all []source) (faults []string) {
	for _, s := range all {
		if !slices.ContainsFunc(nestedLibraries, func(m string) bool { return s.folder() == m || strings.HasPrefix(s.folder(), m+"/") }) {
			continue
		}
		for _, i := range s.file.Imports {
			from, err := strconv.Unquote(i.Path.Value)
			if err != nil || !strings.HasPrefix(from, module+"/") || !slices.Contains(strings.Split(from, "/"), "internal") {
				continue
			}
			faults = append(faults, s.at(i.Pos())+": imports "+from+", which another version of its module may lack.\n"+
				"\tExport what is needed, or move the code or the test below cmd, which is released with its root.")
		}
	}
	return faults
}

func checkPackageComments(all []source) (faults []string) {
	type key struct{ folder, name string }
	var order []key
	commented := map[key]bool{}
	for _, s := range all {
		if s.isTest() || s.ignored() {
			continue
		}
		k := key{s.folder(), s.file.Name.Name}
		if _, seen := commented[k]; !seen {
			order = append(order, k)
			commented[k] = false
		}
		if strings.HasPrefix(s.file.Doc.Text(), lead(k.folder, k.name)+" ") {
			commented[k] = true
		}
	}
	for _, k := range order {
		if !commented[k] {
			faults = append(faults, fmt.Sprintf(
				"%s: package %s has no comment. Start one with\n\t\t// %s …\n"+
					"\tin doc.go or the main file: its purpose, contract and invariants.",
				k.folder, k.name, lead(k.folder, k.name)))
		}
	}
	return faults
}

// lead returns how a package's comment must start.
func lead(folder, name string) string {
	if name == "main" {
		return "Command " + path.Base(folder)
	}
	return "Package " + name
}

func checkPackageNames(all []source) (faults []string) {
	vague := regexp.MustCompile(`^(utils?|common|base|types|helpers?|impl)(_test)?$`)
	seen := map[string]bool{}
	for _, s := range all {
		for _, name := range []string{s.file.Name.Name, path.Base(s.folder())} {
			where := s.folder() + " " + name
			if seen[where] || !vague.MatchString(name) {
				continue
			}
			seen[where] = true
			faults = append(faults, fmt.Sprintf(
				"%s: %q does not describe the content, so anything ends up there: name the package after what it provides.",
				s.folder(), name))
		}
	}
	return faults
}

func checkSleep(all []source) (faults []string) {
	for _, s := range all {
		if !s.isTest() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
				faults = append(faults, s.at(call.Pos())+": a test that sleeps is slow on a fast machine and wrong on a slow one.\n"+
					"\tWait for the event itself, or run in a testing/synctest bubble, where <-time.After(d) takes no time.")
			}
			return true
		})
	}
	return faults
}

func checkUnfinished(all []source) (faults []string) {
	note := regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + `ME)\b`)
	for _, s := range all {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if word := note.FindString(c.Text); word != "" {
					faults = append(faults, fmt.Sprintf(
						"%s: %s: do it now, or describe in a sentence what the code does not do.", s.at(c.Pos()), word))
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			fun, ok := call.Fun.(*ast.Ident)
			if !ok || fun.Name != "panic" {
				return true
			}
			lit, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err == nil && strings.HasPrefix(strings.ToLower(text), "not implemented") {
				faults = append(faults, s.at(call.Pos())+": a stub that panics: write the code, or leave the method out.")
			}
			return true
		})
	}
	return faults
}

// commandLines is the maximum number of lines of a file of cmd/sluice.
const commandLines = 120

// checkThinCommands returns commands that do more than read flags, call a function and print.
func checkThinCommands(all []source) (faults []string) {
	for _, s := range all {
		if s.folder() != "cmd/sluice" || s.isTest() {
			continue
		}
		if n := s.fset.Position(s.file.End()).Line; n > commandLines {
			faults = append(faults, fmt.Sprintf("%s has %d lines, maximum %d for flags, one call and one print: "+
				"move other code to a folder of cmd/internal.", s.name, n, commandLines))
		}
	}
	return faults
}

// TestHouseRulesBite checks each rule on a file that violates it and on one that does not.
func TestHouseRulesBite(t *testing.T) {
	later := "TO" + "DO"
	tests := []struct {
		rule, name, text string
		want             []string
	}{
		{"declared", "memstore/a.go", "package memstore", nil},
		{"declared", "nowhere/a_windows.go", "package nowhere", []string{"nowhere is not declared"}},

		{"nested libraries", "grpclimit/a.go", "package grpclimit\n\nimport _ \"" + module + "/memstore\"", nil},
		{"nested libraries", "cmd/sluice/a.go", "package main\n\nimport _ \"" + module + "/internal/step\"", nil},
		{"nested libraries", "grpclimit/a_test.go", "package grpclimit\n\nimport _ \"" + module + "/internal/step\"", []string{"grpclimit/a_test.go:3"}},

		{"package comments", "a/a.go", "// Package a is.\npackage a", nil},
		{"package comments", "a/a.go", "package a", []string{"// Package a …"}},
		{"package comments", "a/a.go", "// Package ab is.\npackage a", []string{"// Package a …"}},
		{"package comments", "a/a.go", "// Package a is.\n\npackage a", []string{"// Package a …"}},
		{"package comments", "cmd/x/main.go", "// Command x runs.\npackage main", nil},
		{"package comments", "cmd/x/main.go", "package main", []string{"// Command x …"}},
		{"package comments", "a/a_test.go", "package a", nil},
		{"package comments", "a/gen.go", "//go:build ignore\n\npackage main", nil},

		{"package names", "a/a.go", "package a", nil},
		{"package names", "a/a.go", "package utils", []string{`a: "utils"`}},
		{"package names", "a/common/a.go", "package x", []string{`a/common: "common"`}},

		{"no sleeping", "a/a_test.go", "package a\n\nfunc f() { time.Sleep(1) }", []string{"a/a_test.go:3"}},
		{"no sleeping", "a/a_test.go", "package a\n\n// time.Sleep(1)\nfunc f() { clock.Sleep(1) }", nil},
		{"no sleeping", "a/a.go", "package a\n\nfunc f() { time.Sleep(1) }", nil},

		{"nothing left", "a/a.go", "package a\n\n// " + later + ": more", []string{"a/a.go:3"}},
		{"nothing left", "a/a.go", "package a\n\nvar x = context." + later + "()", nil},
		{"nothing left", "a/a.go", "package a\n\nfunc f() { panic(\"not implemented yet\") }", []string{"a stub that panics"}},
		{"nothing left", "a/a.go", "package a\n\nfunc f() { panic(\"unreachable\") }", nil},

		{"thin commands", "cmd/sluice/a.go", "package main\n" + strings.Repeat("\n", 118) + "var x int", nil},
		{"thin commands", "cmd/sluice/a.go", "package main\n" + strings.Repeat("\n", 119) + "var x int", []string{"121 lines"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			compare(t, houseRules[tt.rule]([]source{parse(t, tt.name, tt.text)}), tt.want)
		})
	}
}
