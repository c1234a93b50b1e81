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
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// root is the path of the repository's root, relative to this package.
const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmeProgram follows README.md in an empty directory, as a newcomer does: the commands of "Install" run the first
// program, which prints the decisions that README.md names, and the second responds with the 429 that README.md shows.
func TestReadmeProgram(t *testing.T) {
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(programs) != 2 {
		t.Fatalf("README.md has %d Go snippets, want 2", len(programs))
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
	bash := func(script string) (string, error) {
		cmd := exec.Command("bash", "-ec", script)
		cmd.Dir, cmd.Stderr = dir, t.Output()
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.Output()
		return string(out), err
	}
	write("main.go", programs[0][1])
	out, err := bash(strings.Replace(installCommands(t), "$HOME/sluice", checkout, 1))
	if want := "true 4 0s\ntrue 3 0s\ntrue 2 0s\ntrue 1 0s\ntrue 0 0s\nfalse 0 12s\n"; err != nil || out != want {
		t.Errorf("the library prints, %v,\n%s", err, out)
	}
	write("main.go", strings.ReplaceAll(programs[1][1], "127.0.0.1:8080", address))
	if _, err := bash("go mod tidy && go build -o middleware ."); err != nil {
		t.Fatal(err)
	}
	testMiddleware(t, filepath.Join(dir, "middleware"), address)
}

// installCommands returns the commands of README.md that let a module find the library in a clone, and run it.
func installCommands(t *testing.T) (script string) {
	t.Helper()
	_, section, _ := strings.Cut(read(t, "README.md"), "\n## Install\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			script += command
		}
	}
	if !strings.Contains(script, "go run .") || !strings.Contains(script, "$HOME/sluice") {
		t.Fatalf("the commands to install the library in README.md are\n%s", script)
	}
	return script
}

func testMiddleware(t *testing.T, program, address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, program)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = server.Wait() }()

	for i := range 6 {
		out, err := exec.Command("curl", "-si", "--retry", "50", "--retry-connrefused", "--retry-delay", "0", "--retry-max-time", "30",
			fmt.Sprintf("http://%s/", address)).CombinedOutput()
		response := strings.ReplaceAll(string(out), "\r", "")
		if i < 5 {
			if err != nil || !strings.HasPrefix(response, "HTTP/1.1 200 OK\n") {
				t.Fatalf("request %d: %v\n%s", i+1, err, response)
			}
			continue
		}
		for line := range strings.Lines(shownDenial(t)) {
			if !strings.Contains(response, line) {
				t.Errorf("README.md shows %q; the response is\n%s", line, response)
			}
		}
	}
}

// shownDenial returns the 429 that README.md shows.
func shownDenial(t *testing.T) string {
	t.Helper()
	shown := regexp.MustCompile(`(?s)\nHTTP/1.1 429.*?\n…`).FindString(read(t, "README.md"))
	if shown == "" {
		t.Fatal("README.md shows no response with 429")
	}
	return strings.TrimSuffix(shown[1:], "…")
}

// TestPicture checks that the pictures for light and for dark backgrounds differ in colours only.
func TestPicture(t *testing.T) {
	colour := regexp.MustCompile(`#[0-9a-f]{6}`)
	light, dark := read(t, "docs/images/overview-light.svg"), read(t, "docs/images/overview-dark.svg")
	if colour.ReplaceAllString(light, "") != colour.ReplaceAllString(dark, "") || light == dark {
		t.Error("docs/images: the pictures differ in more than colours, or not at all")
	}
}

// TestLinks checks that the files, folders and headings that documents link to exist.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := doc
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(doc), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
			} else if m[2] != "" && filepath.Ext(target) == ".md" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s#%s: %s has no such heading", doc, m[1], m[2], target)
			}
		}
	}
}

// anchors returns the anchors that GitHub gives to the headings of a document.
func anchors(text string) (all []string) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	other := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ReplaceAll(other.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if n := count(all, name); n > 0 {
			name += fmt.Sprintf("-%d", n)
		}
		all = append(all, name)
	}
	return all
}

func count(all []string, name string) (n int) {
	for _, other := range all {
		if other == name {
			n++
		}
	}
	return n
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

// The Go identifiers in the documents exist.
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
			t.Errorf("the documents mention %s, which does not exist", name)
		}
	}
}

// exportedBy returns the exported names of a package. It parses the files, because running go doc for each name takes 30 s.
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
