package doctest

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

const (
	modulePath = "github.com/sluiceproject/sluice"
	walkPath   = modulePath + "/cmd/internal/doctest/walk"
)

// walked are the packages whose files docs/code-paths.md lists.
var walked = []string{
	walkPath, // without it the program records no coverage
	modulePath, modulePath + "/internal/...", modulePath + "/rules", modulePath + "/rulefile", modulePath + "/httplimit",
	modulePath + "/memstore", modulePath + "/redisstore", modulePath + "/cmd/internal/edge/rls", modulePath + "/cmd/internal/gateway/...",
}

// walks are the code paths that docs/code-paths.md describes: the headings of their lists and their maximum number of files.
var walks = map[string]struct {
	heading  string
	maxFiles int
}{
	"http":  {"HTTP request decided in Redis", 40},
	"queue": {"Queued request", 55},
	"rls":   {"Envoy request decided in memory", 18},
	"rules": {"Rule file reload", 28},
}

var updateWalks = flag.Bool("update-walks", false, "write the lists of TestWalks to docs/code-paths.md")

// pageLock guards docs/code-paths.md while lists are written.
var pageLock sync.Mutex

const codePaths = "../../../docs/code-paths.md"

// TestWalks executes each code path with coverage, and compares the executed files with the list in docs/code-paths.md.
func TestWalks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(codePaths)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "walk")
	build := exec.Command("go", "build", "-cover", "-covermode=atomic", "-coverpkg="+strings.Join(walked, ","), "-o", program, walkPath)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	redis := redistest.Shared(t)
	for name, w := range walks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			walk := exec.Command(program, name, directory, "redis://"+redis.Addr)
			walk.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
			if out, err := walk.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			always, ever := passed(t, directory)
			listed := filesUnder(string(page), w.heading)
			wrong := slices.ContainsFunc(always, func(file string) bool { return !slices.Contains(listed, file) }) ||
				slices.ContainsFunc(listed, func(file string) bool { return !slices.Contains(ever, file) })
			switch {
			case wrong && *updateWalks:
				writeList(t, w.heading, always)
			case wrong:
				t.Errorf("the list below %q in docs/code-paths.md has %d files, but the code path executes %d. If this is intended, run go test ./cmd/internal/doctest -run TestWalks -update-walks\n%s",
					w.heading, len(listed), len(always), listOf(always))
			}
			if len(always) > w.maxFiles {
				t.Errorf("%s: %d files, at most %d: move code that is read together into one file, and avoid calls that return at once",
					w.heading, len(always), w.maxFiles)
			}
		})
	}
}

// passed returns the files that every run executed, and those that any run executed.
func passed(t *testing.T, directory string) (always, ever []string) {
	t.Helper()
	times := make(map[string]int)
	runs, err := filepath.Glob(filepath.Join(directory, "[0-9]"))
	if err != nil || len(runs) == 0 {
		t.Fatal(runs, err)
	}
	for _, run := range runs {
		profile := filepath.Join(t.TempDir(), "profile")
		if out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i", run, "-o", profile).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(profile)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			name, block, ok := strings.Cut(lines.Text(), ":")
			file, ours := strings.CutPrefix(name, modulePath+"/")
			if ok && ours && !strings.HasSuffix(block, " 0") && !strings.Contains(file, "/doctest/") && !seen[file] {
				seen[file] = true
				times[file]++
			}
		}
	}
	byFolder := func(a, b string) int {
		return cmp.Or(strings.Compare(path.Dir(a), path.Dir(b)), strings.Compare(a, b))
	}
	for _, file := range slices.SortedFunc(maps.Keys(times), byFolder) {
		ever = append(ever, file)
		if times[file] == len(runs) {
			always = append(always, file)
		}
	}
	return always, ever
}

// listOf formats files like docs/code-paths.md: a line for each folder.
func listOf(files []string) string {
	var b strings.Builder
	for i := 0; i < len(files); {
		folder := path.Dir(files[i])
		var names []string
		for ; i < len(files) && path.Dir(files[i]) == folder; i++ {
			names = append(names, path.Base(files[i]))
		}
		fmt.Fprintf(&b, "- `%s`: %s\n", folder, strings.Join(names, ", "))
	}
	return b.String()
}

// writeList replaces the list of files below a heading.
func writeList(t *testing.T, heading string, files []string) {
	t.Helper()
	pageLock.Lock()
	defer pageLock.Unlock()
	page, err := os.ReadFile(codePaths)
	if err != nil {
		t.Fatal(err)
	}
	old := regexp.MustCompile(`(?s)(\n### ` + regexp.QuoteMeta(heading) + `\n.*?\n)\d+ files:\n\n(?:- [^\n]*\n)+`)
	if !old.Match(page) {
		t.Fatalf("docs/code-paths.md has no list below %q", heading)
	}
	page = old.ReplaceAll(page, fmt.Appendf(nil, "${1}%d files:\n\n%s", len(files), listOf(files)))
	if err := os.WriteFile(codePaths, page, 0o644); err != nil {
		t.Fatal(err)
	}
}

var listLine = regexp.MustCompile("^- `([^`]+)`: (.*)$")

// filesUnder returns the files in the list below a heading.
func filesUnder(page, heading string) (files []string) {
	_, text, _ := strings.Cut(page, "\n### "+heading)
	text, _, _ = strings.Cut(text, "\n#")
	for line := range strings.Lines(text) {
		if found := listLine.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			for name := range strings.SplitSeq(found[2], ", ") {
				files = append(files, path.Join(found[1], name))
			}
		}
	}
	return files
}
