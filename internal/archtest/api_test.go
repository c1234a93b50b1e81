package archtest

import (
	"bytes"
	"flag"
	"go/ast"
	"go/format"
	"go/printer"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/api")

// publicFolders lists the packages that other programs may import.
var publicFolders = []string{
	".", "grpclimit", "httplimit", "memcachestore", "memstore", "redisstore", "redisstore/goredis", "rulefile", "rules", "storetest",
}

// TestExportedAPI compares the exported API of each public package with a file, so that changes are visible in review.
func TestExportedAPI(t *testing.T) {
	for _, folder := range publicFolders {
		name := strings.ReplaceAll(folder, "/", "_")
		if folder == "." {
			name = "sluice"
		}
		golden := filepath.Join("testdata", "api", name+".txt")
		got := exportedBy(t, folder)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(got, want) {
			continue
		}
		t.Errorf("the exported API of %s has changed: if this is intended, run go test ./internal/archtest -update and add it to CHANGELOG.md\n%s",
			folder, difference(string(want), string(got)))
	}
}

// difference lists the lines that only one of the texts has.
func difference(old, now string) string {
	before, after := strings.Split(old, "\n"), strings.Split(now, "\n")
	var b strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			b.WriteString("-" + line + "\n")
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			b.WriteString("+" + line + "\n")
		}
	}
	return b.String()
}

// exportedBy returns the exported API of a folder's package as Go declarations, sorted by name.
func exportedBy(t *testing.T, folder string) []byte {
	t.Helper()
	var texts []string
	for _, s := range sourcesOf(t, folder) {
		for _, d := range exportedDecls(s.file) {
			var b bytes.Buffer
			c := printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}
			if err := c.Fprint(&b, s.fset, d); err != nil {
				t.Fatal(err)
			}
			text, err := format.Source(withoutGaps(b.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, strings.TrimSpace(string(text))+"\n")
		}
	}
	slices.Sort(texts)
	return []byte(strings.Join(slices.Compact(texts), ""))
}

// sourcesOf parses the files of a folder's package, without tests.
func sourcesOf(t *testing.T, folder string) (all []source) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(folder), "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(names), err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if s := parse(t, path.Join(folder, filepath.Base(name)), string(text)); !s.isTest() && !s.ignored() {
			all = append(all, s)
		}
	}
	return all
}

// withoutGaps removes empty lines, which remain where comments were.
func withoutGaps(text []byte) []byte {
	var lines [][]byte
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	return bytes.Join(lines, nil)
}

// exportedDecls returns the exported declarations of a file, separately and without comments, bodies and unexported
// fields.
func exportedDecls(f *ast.File) (decls []ast.Decl) {
	if !ast.FileExports(f) {
		return nil
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc, d.Body = nil, nil; d.Recv == nil || ast.IsExported(receiver(d)) {
				decls = append(decls, d)
			}
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			decls = append(decls, apart(d)...)
		}
	}
	return decls
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// apart returns the specs of a declaration separately. Constants of one group stay together, because some take their
// value from their position in it.
func apart(d *ast.GenDecl) (decls []ast.Decl) {
	d.Doc = nil
	for _, spec := range d.Specs {
		ast.Inspect(spec, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				n.Doc, n.Comment = nil, nil
			case *ast.ValueSpec:
				n.Doc, n.Comment = nil, nil
			case *ast.TypeSpec:
				n.Doc, n.Comment = nil, nil
			}
			return true
		})
		if d.Tok != token.CONST {
			decls = append(decls, &ast.GenDecl{Tok: d.Tok, TokPos: spec.Pos(), Specs: []ast.Spec{spec}})
		}
	}
	if d.Tok == token.CONST && len(d.Specs) > 0 {
		decls = append(decls, d)
	}
	return decls
}

// TestPublicSignatures checks that exported declarations of public packages use only types that their users can name.
func TestPublicSignatures(t *testing.T) {
	for _, folder := range publicFolders {
		for _, s := range sourcesOf(t, folder) {
			for _, fault := range internalTypes(s) {
				t.Error(fault)
			}
		}
	}
}

// internalTypes returns the exported declarations of a file that use a name of an internal package.
func internalTypes(s source) (faults []string) {
	hidden := make(map[string]string) // import path by name in this file
	for _, i := range s.file.Imports {
		from, err := strconv.Unquote(i.Path.Value)
		if err != nil || !strings.Contains(from, "/internal/") {
			continue
		}
		name := path.Base(from)
		if i.Name != nil {
			name = i.Name.Name
		}
		hidden[name] = from
	}
	for _, d := range exportedDecls(s.file) {
		ast.Inspect(d, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && v.Type == nil { // its value is not part of the API
				return false
			}
			if of, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := of.X.(*ast.Ident); ok && hidden[x.Name] != "" {
					faults = append(faults, s.at(of.Pos())+": "+x.Name+"."+of.Sel.Name+" is of "+hidden[x.Name]+
						", which users of the package cannot name: use a type of a public package")
				}
			}
			return true
		})
	}
	return faults
}

func TestPublicSignaturesBite(t *testing.T) {
	const text = `package p
import (
	"time"
	"example.com/x/internal/step"
	quick "example.com/x/internal/fast"
)
func Plain(d time.Duration) {}
func inner(p *step.Params) {}
type engine struct{}
func (e *engine) Apply(p *step.Params) {}
type Exported struct { hidden step.Params; Shown []quick.Answer }
func (e *Exported) Params() *step.Params { return nil }
var Sentinel = step.Err
var Declared step.Error
`
	if got := len(internalTypes(parse(t, "p.go", text))); got != 3 {
		t.Errorf("%d errors, want those of Shown, Params and Declared: %q", got, internalTypes(parse(t, "p.go", text)))
	}
}
