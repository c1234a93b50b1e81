package doctest

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// root is the repository's root, seen from here.
const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A newcomer copies the README's programs into an empty module: all build, and of the first curl gets a 429.
func TestReadmeProgram(t *testing.T) {
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(programs) < 2 {
		t.Fatalf("README.md has only %d Go snippets", len(programs))
	}
	address := tcptest.FreeAddress(t)
	dir := t.TempDir()
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module newcomer\n\ngo 1.26\n\nreplace github.com/sluiceproject/sluice => "+checkout+"\n")
	for i, program := range programs {
		write(fmt.Sprintf("program%d/main.go", i), strings.ReplaceAll(program[1], "127.0.0.1:8080", address))
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", filepath.Join(dir, "bin") + "/", "./..."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, filepath.Join(dir, "bin", "program0"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = server.Wait() }()

	for i := range 6 {
		out, err := exec.Command("curl", "-si", "--retry", "50", "--retry-connrefused", "--retry-delay", "0", "--retry-max-time", "30",
			fmt.Sprintf("http://%s/", address)).CombinedOutput()
		answer := strings.ReplaceAll(string(out), "\r", "")
		if i < 5 {
			if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 200 OK\n") {
				t.Fatalf("request %d: %v\n%s", i+1, err, answer)
			}
			continue
		}
		for _, line := range strings.Split(limitedAnswer(t), "\n") {
			if !strings.Contains(answer, strings.TrimSpace(line)) {
				t.Errorf("README.md shows %q; the answer is\n%s", strings.TrimSpace(line), answer)
			}
		}
	}
}

// limitedAnswer is the 429 that the README shows.
func limitedAnswer(t *testing.T) string {
	t.Helper()
	shown := regexp.MustCompile(`(?s)    HTTP/1.1 429.*?\n    …`).FindString(read(t, "README.md"))
	if shown == "" {
		t.Fatal("README.md shows no 429")
	}
	return strings.TrimSuffix(shown, "\n    …")
}

// Files and folders that the documents link to are there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
	}
}

// documents lists the Markdown files at the root and under docs.
func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "cmd/bench/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			name, _ := filepath.Rel(root, f)
			names = append(names, name)
		}
	}
	if len(names) < 6 {
		t.Fatalf("found only %v", names)
	}
	return names
}

// The identifiers that the documents show in code exist.
func TestIdentifiers(t *testing.T) {
	shown := regexp.MustCompile(`\b(sluice|memstore|httplimit|grpclimit)\.([A-Z]\w*)`)
	known := map[string]string{}
	for _, doc := range documents(t) {
		for _, m := range shown.FindAllStringSubmatch(read(t, doc), -1) {
			pkg := "./" + m[1]
			if m[1] == "sluice" {
				pkg = "."
			}
			known[m[0]] = pkg + " " + m[2]
		}
	}
	exported := map[string]map[string]bool{}
	for name, where := range known {
		pkg, symbol, _ := strings.Cut(where, " ")
		if exported[pkg] == nil {
			exported[pkg] = exportedBy(t, pkg)
		}
		if !exported[pkg][symbol] {
			t.Errorf("the documents mention %s, which is not there", name)
		}
	}
}

// exportedBy are the names that a package declares for others. Asking go doc for each takes half a minute.
func exportedBy(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			names[id.Name] = id.IsExported()
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						add(s.Names...)
					}
				}
			}
		}
	}
	return names
}
