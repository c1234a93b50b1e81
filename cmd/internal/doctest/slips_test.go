package doctest

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// TestSlipsOfThePen parses every file that users copy from, with characters and lines dropped, doubled and swapped, as a rule file,
// configuration file, account file or test file. Parsing succeeds or returns an error, but never panics, not even if the panic is
// recovered.
func TestSlipsOfThePen(t *testing.T) {
	files := shownFiles(t)
	if len(files) < 100 {
		t.Fatalf("found only %d files and blocks", len(files))
	}
	each := 10
	if os.Getenv("SLUICE_SOAK") != "" {
		each = 100_000
	}
	seed := rand.Uint64()
	count, refused := 0, 0
	for i, name := range slices.Sorted(maps.Keys(files)) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		for range each {
			text := slips(rng, files[name][rng.IntN(len(files[name]))])
			before := panics.Recovered()
			err := readShownAs(name, text)
			if panics.Recovered() != before {
				t.Fatalf("%s, seed %d: %v, from\n%s", name, seed, err, text)
			}
			if count++; err != nil {
				refused++
			}
		}
	}
	t.Logf("%d typos in %d files: %d rejected, %d panics", count, len(files), refused, panics.Recovered())
}

// readShownAs parses a text like the program. [panics.Recovered] counts every recovered panic.
func readShownAs(name, text string) (err error) {
	defer panics.Recover(func(e *panics.Error) { err = fmt.Errorf("%w\n%s", e, e.Stack) })
	data := []byte(text)
	switch {
	case config.IsServiceConfig(data):
		_, err = config.Parse(name, data, func(string) (string, bool) { return "x", true })
		return err
	case authn.IsAccountFile(data):
		return authn.Check(name, data)
	case strings.HasSuffix(name, "_test.yaml"):
		_, err = ruletest.Parse(name, data)
		return err
	}
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: name, Data: data})
	if err != nil {
		return err
	}
	set, err := rules.New(cfg)
	if err != nil {
		return err
	}
	set.Warnings()
	_, err = rulefile.Format(name, data)
	return err
}

// slips returns the text with one to three random typos.
func slips(rng *rand.Rand, text string) string {
	for range 1 + rng.IntN(3) {
		if text == "" {
			return text
		}
		lines := strings.SplitAfter(text, "\n")
		i, at := rng.IntN(len(lines)), rng.IntN(len(text))
		switch rng.IntN(9) {
		case 0, 1: // a character is dropped
			text = text[:at] + text[at+1:]
		case 2: // doubled
			text = text[:at] + text[at:at+1] + text[at:]
		case 3, 4: // swapped with the next
			if at+1 < len(text) {
				text = text[:at] + text[at+1:at+2] + text[at:at+1] + text[at+2:]
			}
		case 5: // a line is dropped
			text = strings.Join(slices.Delete(lines, i, i+1), "")
		case 6: // doubled
			text = strings.Join(slices.Insert(lines, i, lines[i]), "")
		case 7: // swapped with another
			k := rng.IntN(len(lines))
			lines[i], lines[k] = lines[k], lines[i]
			text = strings.Join(lines, "")
		case 8: // the file is truncated
			text = text[:at]
		}
	}
	return text
}

// shownFiles returns the YAML files of the repository, including those of tests, and the YAML blocks of its pages, by name. A file
// with several test cases has a text for each.
func shownFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		switch filepath.Ext(path) {
		case ".yaml", ".yml":
			files[name] = []string{read(t, name)}
		case ".md":
			for _, b := range blocks(t, name, "yaml") {
				files[fmt.Sprintf("%s:%d", b.doc, b.line)] = []string{b.text}
			}
		case ".txt":
			for _, c := range strings.Split(read(t, name), "==== case: ")[1:] {
				_, text, _ := strings.Cut(c, "\n")
				text, _, _ = strings.Cut(text, "==== result")
				files[name] = append(files[name], text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, texts := range files { // files of other programs, and fragments
		if !strings.Contains(name, "testdata/") && readShownAs(name, texts[0]) != nil {
			delete(files, name)
		}
	}
	return files
}
