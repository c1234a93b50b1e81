package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// maxModules is the maximum number of modules in the graph of a program that uses the library, including itself.
const maxModules = 12

// workspace returns the folders of the modules in go.work.
func workspace(t *testing.T) (folders []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^\t\.(?:/(.+))?$`).FindAllStringSubmatch(readFile(t, "go.work"), -1) {
		if m[1] == "" {
			m[1] = "."
		}
		folders = append(folders, m[1])
	}
	if !slices.Contains(folders, ".") {
		t.Fatalf("go.work uses %q, which lacks the root", folders)
	}
	return folders
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goCommand runs the go command outside the workspace and returns its output.
func goCommand(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.New("go " + strings.Join(args, " ") + ": " + err.Error() + "\n" + stderr.String())
	}
	return string(out), err
}

func mustGo(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	out, err := goCommand(t, dir, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out)
}

// TestInstallable checks that no go.mod has replacements: go install rejects such a module, and programs that require
// it do not see them. Replacements that a fresh clone needs are in go.work.
func TestInstallable(t *testing.T) {
	if got, want := workspace(t), slices.Concat([]string{".", "cmd"}, nestedLibraries); !slices.Equal(got, want) {
		t.Errorf("go.work uses %q, this test expects %q: add a library to nestedLibraries", got, want)
	}
	for _, folder := range workspace(t) {
		if mod := readFile(t, filepath.Join(folder, "go.mod")); strings.Contains(mod, "replace") {
			t.Errorf("%s/go.mod replaces a module: do so in go.work", folder)
		}
	}
}

// TestTinyProgram checks that a program that imports the root and memstore does not depend on modules that the library
// does not import, and so gets no minimum version for any of them.
func TestTinyProgram(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module tiny\n\ngo " + lowestGo(t) + "\n\nreplace " + module + " => " + root(t) + "\n",
		"main.go": `package main

import (
	"context"
	"fmt"

	"` + module + `"
	"` + module + `/memstore"
)

func main() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerMinute(5)))
	d, err := limiter.Allow(context.Background(), "ada")
	fmt.Println(d.Allowed, err)
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustGo(t, dir, "mod", "tidy")
	if said := mustGo(t, dir, "run", "."); !slices.Equal(said, []string{"true", "<nil>"}) {
		t.Errorf("output is %q", said)
	}
	graph := mustGo(t, dir, "list", "-m", "-f", "{{.Path}}", "all")
	t.Logf("%d modules: %s", len(graph), strings.Join(graph, " "))
	if len(graph) > maxModules {
		t.Errorf("%d modules, maximum %d: move the new dependency to a separate module", len(graph), maxModules)
	}
	imported := mustGo(t, root(t), "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	for _, m := range graph {
		if m != "tiny" && !slices.Contains(imported, m) {
			t.Errorf("go.mod makes programs take %s, which no package of the library imports", m)
		}
	}
}

// lowestGo returns the Go version in the library's go.mod.
func lowestGo(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(readFile(t, "go.mod"))
	if m == nil {
		t.Fatal("go.mod declares no version of Go")
	}
	return m[1]
}

// TestLowestGo type-checks the library with the standard library of the minimum Go version, which go list downloads,
// and with the minimum versions of its dependencies. Compiling would find the same errors and take a minute.
func TestLowestGo(t *testing.T) {
	version := lowestGo(t)
	env := []string{"GOTOOLCHAIN=go" + version, "GOFLAGS=-buildvcs=false", "CGO_ENABLED=0"}
	if said, err := goCommand(t, root(t), env, "version"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("Go %s is not available: %v", version, err)
	} else if !strings.HasPrefix(said, "go version go"+version+" ") {
		t.Fatalf("%s is not Go %s", said, version)
	}
	out, err := goCommand(t, root(t), env, "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
	if err != nil {
		t.Fatal(err)
	}
	c := checker{fset: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		c.check(t, p)
	}
	if c.ours < 20 {
		t.Errorf("only %d packages of the library were checked", c.ours)
	}
}

// A listedPackage is a package in the output of go list.
type listedPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Path, GoVersion string }
}

// checker type-checks packages from source, each after its imports. It checks only the declarations of packages outside
// this repository.
type checker struct {
	fset *token.FileSet
	done map[string]*types.Package
	ours int
}

func (c *checker) check(t *testing.T, p listedPackage) {
	t.Helper()
	if p.ImportPath == "unsafe" {
		return
	}
	ours := p.Module != nil && p.Module.Path == module
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	config := types.Config{
		Importer: importerFunc(func(path string) (*types.Package, error) {
			if to, ok := p.ImportMap[path]; ok {
				path = to
			}
			if found := c.done[path]; found != nil {
				return found, nil
			}
			return nil, errors.New("not listed")
		}),
		Sizes:            types.SizesFor("gc", runtime.GOARCH),
		IgnoreFuncBodies: !ours,
		Error: func(err error) {
			if ours {
				t.Error(err)
			}
		},
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	c.done[p.ImportPath], _ = config.Check(p.ImportPath, c.fset, files, nil)
	if ours {
		c.ours++
	}
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
