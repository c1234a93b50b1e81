package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// needNoExample lists methods that users do not call: the standard library, a limiter or a store calls them. The
// methods of a Limiter are for users.
var needNoExample = []string{
	"String", "Error", "Unwrap", "Is", "MarshalText", "UnmarshalText",
	"Apply", "Reset", "ResetRules", "Block", "Blocked", "List", "Shards", "Shard", "Patience",
	"Do", "Cluster", "Primaries",
}

// TestExamples checks that every exported function and method of a public package has an example: its own, or one that
// uses it and belongs to the package, to the type under which go doc shows it, or to a function that returns or fills
// that type.
func TestExamples(t *testing.T) {
	for _, folder := range publicFolders {
		var exported []*ast.FuncDecl
		for _, s := range sourcesOf(t, folder) {
			for _, d := range exportedDecls(s.file) {
				if f, ok := d.(*ast.FuncDecl); ok {
					exported = append(exported, f)
				}
			}
		}
		examples := examplesIn(t, folder)
		for _, f := range exported {
			i := slices.IndexFunc(examples, func(e example) bool { return e.of == fullName(f) })
			if i >= 0 {
				examples[i].owners = append(examples[i].owners, typesOf(f)...)
			}
		}
		for _, f := range exported {
			if f.Recv != nil && receiver(f) != "Limiter" && slices.Contains(needNoExample, f.Name.Name) {
				continue
			}
			if !slices.ContainsFunc(examples, func(e example) bool { return e.shows(f) }) {
				t.Errorf("%s: no example shows %s", folder, strings.ReplaceAll(fullName(f), "_", "."))
			}
		}
	}
}

// example is an example function.
type example struct {
	of       string   // "", "F", "T" or "T_M"
	owners   []string // the types whose functions and methods it may show
	mentions []string
}

func (e *example) shows(f *ast.FuncDecl) bool {
	if e.of == fullName(f) {
		return true
	}
	return (e.of == "" || slices.Contains(e.owners, ownerOf(f))) && slices.Contains(e.mentions, f.Name.Name)
}

// fullName returns F, or T_M for a method.
func fullName(f *ast.FuncDecl) string {
	if f.Recv != nil {
		return receiver(f) + "_" + f.Name.Name
	}
	return f.Name.Name
}

// ownerOf returns the type under which go doc shows a function or method, or "".
func ownerOf(f *ast.FuncDecl) string {
	if f.Recv != nil {
		return receiver(f)
	}
	if f.Type.Results == nil {
		return ""
	}
	result := f.Type.Results.List[0].Type
	if star, ok := result.(*ast.StarExpr); ok {
		result = star.X
	}
	return typeName(result)
}

// typesOf returns the types of its own package that a function returns, or fills through a pointer.
func typesOf(f *ast.FuncDecl) (names []string) {
	fields := slices.Clone(f.Type.Params.List)
	fields = slices.DeleteFunc(fields, func(p *ast.Field) bool { _, ok := p.Type.(*ast.StarExpr); return !ok })
	if f.Type.Results != nil {
		fields = append(fields, f.Type.Results.List...)
	}
	for _, field := range fields {
		t := field.Type
		if list, ok := t.(*ast.ArrayType); ok {
			t = list.Elt
		}
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		if name := typeName(t); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// typeName returns the name of an exported type of the package itself, or "".
func typeName(t ast.Expr) string {
	if id, ok := t.(*ast.Ident); ok && id.IsExported() {
		return id.Name
	}
	return ""
}

// examplesIn returns the examples in the tests of a folder. Suffixes that distinguish several examples are dropped.
func examplesIn(t *testing.T, folder string) (all []example) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parse(t, filepath.Base(name), string(text)).file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Example") {
				continue
			}
			e := example{of: strings.TrimPrefix(f.Name.Name, "Example")}
			parts := strings.Split(e.of, "_")
			if last := parts[len(parts)-1]; len(parts) > 1 && !ast.IsExported(last) {
				e.of = strings.Join(parts[:len(parts)-1], "_")
			}
			owner, _, _ := strings.Cut(e.of, "_")
			e.owners = []string{owner}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					e.mentions = append(e.mentions, id.Name)
				}
				return true
			})
			all = append(all, e)
		}
	}
	return all
}
