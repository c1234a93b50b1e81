package doctest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// rulePages are the reference of rule files.
var rulePages = []string{
	"docs/rules.md", "docs/rules-matching.md", "docs/rules-limits.md", "docs/rules-cost.md", "docs/rules-on-limit.md",
	"docs/rules-reload.md", "docs/client-ip.md", "docs/rule-tests.md", "docs/envoy-rules.md",
}

// cookbookPages show the examples.
var cookbookPages = []string{"docs/cookbook.md", "docs/cookbook-protection.md"}

// ruleDocs are the documents about rule files.
var ruleDocs = slices.Concat(rulePages, cookbookPages, []string{"docs/migrate-from-envoy-ratelimit.md"})

// block is a fenced code block of a document.
type block struct {
	doc   string
	line  int
	text  string
	above string // last line of text above the block
}

// blocks returns the blocks of a document in a language.
func blocks(t *testing.T, doc, language string) []block {
	t.Helper()
	var all []block
	var open *block
	above, fenced := "", false
	for i, line := range strings.Split(read(t, doc), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced = !fenced; !fenced && open != nil {
				all = append(all, *open)
			}
			open = nil
			if fenced && line == "```"+language {
				open = &block{doc: doc, line: i + 2, above: above}
			}
		case open != nil:
			open.text += line + "\n"
		case !fenced && line != "":
			above = line
		}
	}
	return all
}

// Every YAML file that the documents show is a valid rule file or test file, formatted by sluice fmt.
func TestRuleFilesInDocs(t *testing.T) {
	for _, doc := range ruleDocs {
		shown := blocks(t, doc, "yaml")
		if len(shown) < 3 {
			t.Errorf("%s shows only %d rule files", doc, len(shown))
		}
		for _, b := range shown {
			if err := readShown(b.text); err != nil {
				t.Errorf("%s:%d: %v", doc, b.line, err)
			}
			formatted, err := rulefile.Format("", []byte(b.text))
			if err != nil || string(formatted) != b.text {
				t.Errorf("%s:%d: not formatted: sluice fmt prints, %v,\n%s", doc, b.line, err, formatted)
			}
		}
	}
}

func readShown(text string) error {
	if strings.HasPrefix(text, "tests:") || strings.Contains(text, "\ntests:") {
		_, err := ruletest.Parse("shown_test.yaml", []byte(text))
		return err
	}
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "shown.yaml", Data: []byte(text)})
	if err != nil {
		return err
	}
	_, err = rules.New(cfg)
	return err
}

// The cookbook shows exactly the rule files of the examples, without their first line, which is for editors.
func TestCookbookShowsTheExamples(t *testing.T) {
	missing := make(map[string]bool)
	files, err := filepath.Glob(filepath.Join(root, "examples/rules/*/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.yaml") {
			name, _ := filepath.Rel(root, f)
			missing[name] = true
		}
	}
	if len(missing) < 14 {
		t.Fatalf("found only %d examples", len(missing))
	}
	link := regexp.MustCompile(`\]\(\.\./(examples/rules/[^)]+)\)$`)
	for _, doc := range cookbookPages {
		for _, b := range blocks(t, doc, "yaml") {
			m := link.FindStringSubmatch(b.above)
			if m == nil {
				t.Errorf("%s:%d: the line above does not link to the file", doc, b.line)
				continue
			}
			want := read(t, m[1])
			if first, rest, _ := strings.Cut(want, "\n"); strings.HasPrefix(first, "# yaml-language-server") {
				want = rest
			}
			if b.text != want {
				t.Errorf("%s:%d: %s is\n%s", doc, b.line, m[1], want)
			}
			delete(missing, m[1])
		}
	}
	for name := range missing {
		t.Errorf("%q do not show %s", cookbookPages, name)
	}
}

// The tables of keys list the keys that rulefile reads, no more and no less, each section in one page.
func TestKeysInDocs(t *testing.T) {
	keys := rulefile.Keys()
	table := regexp.MustCompile(`(?m)^<!-- keys: ([a-z_ ]+) -->\n((?:\|.*\n)+)`)
	name := regexp.MustCompile("`([a-z0-9_]+)`")
	for _, doc := range rulePages {
		for _, table := range table.FindAllStringSubmatch(read(t, doc), -1) {
			var shown []string
			for _, row := range strings.Split(strings.TrimSpace(table[2]), "\n")[2:] {
				for _, m := range name.FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
					shown = append(shown, m[1])
				}
			}
			slices.Sort(shown)
			if want, ok := keys[table[1]]; !ok || !slices.Equal(shown, want) {
				t.Errorf("%s: the table of %s has\n%q, rulefile reads\n%q", doc, table[1], shown, want)
			}
			delete(keys, table[1])
		}
	}
	for section := range keys {
		t.Errorf("%q have no table of the keys of %s", rulePages, section)
	}
}

// Links to headings have a target.
func TestHeadings(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	link := regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`)
	for _, doc := range ruleDocs {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			target := doc
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(doc), m[1])
			}
			found := false
			for _, h := range heading.FindAllStringSubmatch(read(t, target), -1) {
				slug := strings.ReplaceAll(strings.ToLower(h[1]), " ", "-")
				found = found || regexp.MustCompile(`[^\w-]`).ReplaceAllString(slug, "") == m[2]
			}
			if !found {
				t.Errorf("%s links to %s#%s, which does not exist", doc, target, m[2])
			}
		}
	}
}

// workshop creates a directory with the examples and some access logs. It returns a function that runs commands there, with the
// program on the PATH.
func workshop(t *testing.T) (run func(command string) (output string, code int)) {
	t.Helper()
	dir := t.TempDir()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	const examples = "examples/rules"
	if err := os.CopyFS(filepath.Join(dir, examples), os.DirFS(filepath.Join(root, examples))); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{
		"traffic": "cmd/sluice/testdata/traffic", "recorded": "cmd/internal/traffic/recommend/testdata", "requests": "cmd/internal/traffic/logs/testdata",
	} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, from))); err != nil {
			t.Fatal(err)
		}
	}
	return func(command string) (string, int) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatalf("%s: %v", command, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
}

// Commands print the output that the documents show. Their exit code is 0 unless "# ends with 1" follows them. In the output …
// matches any text, and on its own line any number of lines. Times may differ.
func TestCommandsInDocs(t *testing.T) {
	t.Parallel()
	run := workshop(t)
	comment := regexp.MustCompile(` +# ends with (\d)$`)
	commands := 0
	for _, doc := range append([]string{"docs/simulation.md", "docs/traffic-logs.md", "docs/choosing-limits.md", "docs/authentication.md"}, ruleDocs...) {
		for _, b := range blocks(t, doc, "console") {
			for _, shown := range strings.Split("\n"+b.text, "\n$ ")[1:] {
				command, want, _ := strings.Cut(shown, "\n")
				code := "0"
				if m := comment.FindStringSubmatch(command); m != nil {
					code, command = m[1], strings.TrimSuffix(command, m[0])
				}
				commands++
				out, exit := run(command)
				if string(rune('0'+exit)) != code {
					t.Errorf("%s:%d: %s: exit code %d\n%s", doc, b.line, command, exit, out)
				}
				if !shows(want, out) {
					t.Errorf("%s:%d: %s prints\n%s", doc, b.line, command, out)
				}
			}
		}
	}
	if commands < 12 {
		t.Errorf("only %d commands were found", commands)
	}
}

// shows reports whether the output matches the output that a document shows.
func shows(want, out string) bool {
	times := regexp.MustCompile(`\d+\.\d{3}s`)
	out = times.ReplaceAllString(strings.TrimSpace(out), "0.000s")
	pattern := regexp.QuoteMeta(strings.TrimSpace(want))
	pattern = regexp.MustCompile(`(?m)^…$`).ReplaceAllString(pattern, `(?s:.*)`)
	return regexp.MustCompile("^" + strings.ReplaceAll(pattern, "…", ".*") + "$").MatchString(out)
}

// envoyTests are the tests of examples/rules/envoy. They are in another directory, because envoyproxy/ratelimit reads every file of
// that one and rejects test files.
const envoyTests = "examples/rules/envoy-tests"

// The rule files of the examples are valid, pass their tests, and are formatted by sluice fmt.
func TestExampleRules(t *testing.T) {
	t.Parallel()
	run := workshop(t)
	directories, err := fs.Glob(os.DirFS(root), "examples/rules/*")
	if err != nil || len(directories) < 13 {
		t.Fatalf("%d examples, %v", len(directories), err)
	}
	for _, dir := range directories {
		for _, command := range []string{"sluice check ", "sluice test ", "sluice fmt --check "} {
			if dir == envoyTests && command == "sluice check " || dir == "examples/rules/envoy" && command == "sluice test " {
				continue
			}
			if out, code := run(command + dir); code != 0 {
				t.Errorf("%s%s: exit code %d\n%s", command, dir, code, out)
			}
		}
	}
}
