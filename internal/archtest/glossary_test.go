package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// term is a word of Sluice.
type term struct {
	Term  string `yaml:"term"`
	Means string `yaml:"means"`
	See   string `yaml:"see"` // a page of docs
}

// peerWord is a word of another product, or of the literature.
type peerWord struct {
	Word string `yaml:"word"`
	Of   string `yaml:"of"`
	Ours string `yaml:"ours"`
	See  string `yaml:"see"`
}

const glossaryHead = `# Glossary

The words of Sluice, and the words of other products with their equivalents. Each page of the docs uses these words and no
others for the same thing. This page is generated from internal/archtest/vocabulary.yaml.

`

// glossary returns the text of docs/glossary.md.
func glossary(v vocabulary) string {
	var b strings.Builder
	b.WriteString(glossaryHead)
	b.WriteString("## Terms\n\n| term | meaning | page |\n|---|---|---|\n")
	for _, t := range v.Terms {
		fmt.Fprintf(&b, "| **%s** | %s | %s |\n", t.Term, t.Means, pageLink(t.See))
	}
	b.WriteString("\n## Words of other products\n\n| word | used by | in Sluice | page |\n|---|---|---|---|\n")
	for _, p := range v.Peers {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.Word, p.Of, p.Ours, pageLink(p.See))
	}
	b.WriteString("\n## See also\n\n[Documentation](README.md) lists all pages, [Algorithms](algorithms.md) compares the algorithms.\n")
	return b.String()
}

// pageLink returns a link to a page, with its name as the text.
func pageLink(page string) string {
	name, _, _ := strings.Cut(page, ".md")
	return fmt.Sprintf("[%s](%s)", name, page)
}

// TestGlossary checks that docs/glossary.md is what vocabulary.yaml generates, and that docs use its terms.
func TestGlossary(t *testing.T) {
	v := readVocabulary(t)
	docs := filepath.Join(root(t), "docs")
	file := filepath.Join(docs, "glossary.md")
	want := glossary(v)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("docs/glossary.md is not what vocabulary.yaml generates (%v); to write it: go test ./internal/archtest -run TestGlossary -update", err)
	}

	text := allDocs(t, docs)
	var words []string
	for _, term := range v.Terms {
		words = append(words, strings.ToLower(term.Term))
		if !strings.Contains(text, strings.ToLower(term.Term)) {
			t.Errorf("no page of docs has the term %q", term.Term)
		}
		if term.Means == "" {
			t.Errorf("the term %q has no meaning", term.Term)
		}
	}
	for i := range words[1:] {
		if words[i] >= words[i+1] {
			t.Errorf("vocabulary.yaml: terms are sorted and occur once: %q is before %q", words[i], words[i+1])
		}
	}
}

// allDocs returns the pages of docs, less the glossary, in lower case and with single spaces.
func allDocs(t *testing.T, docs string) string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, page := range pages {
		if filepath.Base(page) == "glossary.md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return strings.ToLower(strings.Join(strings.Fields(b.String()), " "))
}
