package archtest

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// wordsBelow selects what TestWords checks, for work on one folder.
var wordsBelow = flag.String("words", "", "check only files whose path starts with this")

// phrase is a phrase that readers have to decode.
type phrase struct {
	Pattern string `yaml:"pattern"`
	In      string `yaml:"in"` // any of c (comments), d (Markdown), m (messages)
	Write   string `yaml:"write"`

	regexp   *regexp.Regexp
	literals []string // one of them is in every match, in lower case; nil: unknown
}

// vocabulary is the content of vocabulary.yaml.
type vocabulary struct {
	Phrases []*phrase  `yaml:"phrases"`
	Terms   []term     `yaml:"terms"`
	Peers   []peerWord `yaml:"peers"`
}

func readVocabulary(t *testing.T) (v vocabulary) {
	t.Helper()
	text, err := os.ReadFile("vocabulary.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Phrases {
		p.regexp = regexp.MustCompile(`(?i)` + p.Pattern)
		parsed, err := syntax.Parse(strings.ToLower(p.Pattern), syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		p.literals = literalsOf(parsed.Simplify())
	}
	return v
}

// literalsOf returns texts of which each match of an expression contains at least one, or nil if none are found. Looking
// for them first makes the check 20 times as fast as the expressions alone.
func literalsOf(re *syntax.Regexp) (best []string) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCapture, syntax.OpPlus:
		return literalsOf(re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			found := literalsOf(sub)
			if found == nil {
				return nil
			}
			best = append(best, found...)
		}
	case syntax.OpConcat:
		shortest := func(all []string) int {
			return len(slices.MinFunc(all, func(a, b string) int { return cmp.Compare(len(a), len(b)) }))
		}
		for _, sub := range re.Sub {
			if found := literalsOf(sub); found != nil && (best == nil || shortest(found) > shortest(best)) {
				best = found
			}
		}
	}
	return best
}

// quoted lists text of others that contains a checked phrase, and names that are defined elsewhere.
// An entry exempts a match that is part of it.
var quoted = []string{
	"connection refused",
	"expect: refuse", // a name that is no longer valid
}

// A passage is a piece of text that people read, with its line breaks replaced by spaces.
type passage struct {
	kind  byte // c, d or m, as in vocabulary.yaml
	file  string
	text  string
	lines []lineStart
}

type lineStart struct{ offset, line int }

func (p *passage) add(line int, text string) {
	if p.text != "" {
		p.text += " "
	}
	p.lines = append(p.lines, lineStart{len(p.text), line})
	p.text += text
}

// at returns the position of an offset of the text.
func (p passage) at(offset int) string {
	i, found := slices.BinarySearchFunc(p.lines, offset, func(l lineStart, o int) int { return cmp.Compare(l.offset, o) })
	if !found {
		i--
	}
	return fmt.Sprintf("%s:%d", p.file, p.lines[i].line)
}

// TestWords checks that comments, docs and messages use the vocabulary.
func TestWords(t *testing.T) {
	v := readVocabulary(t)
	goFiles := sources(t)
	passages := append(goPassages(goFiles), textPassages(t)...)
	var errors []string
	for _, p := range passages {
		errors = append(errors, checkPhrases(p, v.Phrases)...)
		errors = append(errors, checkMarkdown(p)...)
	}
	for _, s := range goFiles {
		errors = append(errors, checkDocComments(s)...)
		errors = append(errors, checkLogMessages(s)...)
		errors = append(errors, checkMetricHelp(s)...)
	}
	n := 0
	for _, e := range errors {
		if strings.HasPrefix(e, *wordsBelow) {
			n++
			t.Error(e)
		}
	}
	if n > 0 {
		t.Errorf("%d places to reword; internal/archtest/vocabulary.yaml has the vocabulary", n)
	}
}

func checkPhrases(p passage, phrases []*phrase) (errors []string) {
	lower := strings.ToLower(p.text)
	for _, ph := range phrases {
		if !strings.ContainsRune(ph.In, rune(p.kind)) ||
			ph.literals != nil && !slices.ContainsFunc(ph.literals, func(l string) bool { return strings.Contains(lower, l) }) {
			continue
		}
		for _, m := range ph.regexp.FindAllStringIndex(p.text, -1) {
			if !isQuoted(p.text, m[0], m[1]) {
				errors = append(errors, fmt.Sprintf("%s: %q: write %s", p.at(m[0]), p.text[m[0]:m[1]], ph.Write))
			}
		}
	}
	return errors
}

// isQuoted reports whether text[from:to] is part of an entry of quoted.
func isQuoted(text string, from, to int) bool {
	return slices.ContainsFunc(quoted, func(q string) bool {
		start := max(0, from-len(q))
		i := strings.Index(text[start:min(len(text), to+len(q))], q)
		return i >= 0 && start+i <= from && to <= start+i+len(q)
	})
}

// goPassages returns the comments of all files and the string literals of those that are no tests.
func goPassages(all []source) (passages []passage) {
	for _, s := range all {
		for _, group := range s.file.Comments {
			p := passage{kind: 'c', file: s.name}
			for _, c := range group.List {
				line := s.fset.Position(c.Pos()).Line
				for i, text := range strings.Split(c.Text, "\n") {
					if !strings.HasPrefix(text, "//go:") {
						p.add(line+i, strings.TrimSpace(strings.TrimPrefix(text, "//")))
					}
				}
			}
			passages = append(passages, p)
		}
		if s.isTest() || s.apart {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && len(lit.Value) >= 10 {
				p := passage{kind: 'm', file: s.name}
				line := s.fset.Position(lit.Pos()).Line
				text, _ := strconv.Unquote(lit.Value)
				if lit.Value[0] == '"' { // its line breaks are escapes
					p.add(line, strings.ReplaceAll(text, "\n", " "))
				} else {
					for i, l := range strings.Split(text, "\n") {
						p.add(line+i, strings.TrimSpace(l))
					}
				}
				passages = append(passages, p)
			}
			_, isImport := n.(*ast.ImportSpec)
			return !isImport
		})
	}
	return passages
}

// textPassages returns the paragraphs of Markdown files, the descriptions of YAML and JSON files, and the comments of
// YAML, Lua and shell files and of makefiles.
func textPassages(t *testing.T) (passages []passage) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, full)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if d.IsDir() {
			hidden := name != "." && strings.HasPrefix(d.Name(), ".")
			if hidden || slices.Contains([]string{"testdata", "node_modules", "bin", "dist"}, d.Name()) ||
				name == "cmd/bench" || name == "cmd/interop" {
				return fs.SkipDir
			}
			return nil
		}
		read := readerOf(name)
		if read == nil {
			return nil
		}
		text, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		passages = append(passages, read(name, string(text))...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return passages
}

// readerOf returns the function that reads the passages of a file, or nil.
func readerOf(name string) func(name, text string) []passage {
	switch ext := path.Ext(name); {
	case name == "internal/archtest/vocabulary.yaml", name == "docs/glossary.md", ext == ".md" && path.Base(name) == "LICENSE":
		return nil // lists the phrases
	case ext == ".md":
		return markdownPassages
	case ext == ".yaml", ext == ".yml", ext == ".json":
		return dataPassages
	case ext == ".lua":
		return func(name, text string) []passage { return commentPassages(name, text, "--") }
	case ext == ".sh", path.Base(name) == "Makefile", path.Base(name) == "Dockerfile":
		return func(name, text string) []passage { return commentPassages(name, text, "#") }
	}
	return nil
}

// markdownPassages returns a passage for each paragraph, heading, table row and block of code.
func markdownPassages(name, text string) (passages []passage) {
	p := passage{kind: 'd', file: name}
	flush := func() {
		if p.text != "" {
			passages = append(passages, p)
		}
		p = passage{kind: 'd', file: name}
	}
	code := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			code = !code
			flush()
			continue
		}
		indented := strings.HasPrefix(line, "    ") && p.text == ""
		if alone := strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "|"); code || indented || alone {
			flush()
			if trimmed != "" {
				one := passage{kind: 'd', file: name}
				if code || indented {
					trimmed = "\t" + trimmed // no sentence, see checkMarkdown
				}
				one.add(i+1, trimmed)
				passages = append(passages, one)
			}
			continue
		}
		if trimmed == "" || listItem.MatchString(trimmed) {
			flush()
		}
		if trimmed != "" {
			p.add(i+1, trimmed)
		}
	}
	flush()
	return passages
}

var listItem = regexp.MustCompile(`^([-*]|\d+\.) `)

// dataPassages returns the comments of a YAML or JSON file, and its descriptions.
func dataPassages(name, text string) (passages []passage) {
	if path.Ext(name) != ".json" {
		passages = commentPassages(name, text, "#")
	}
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var n yaml.Node
		if d.Decode(&n) != nil {
			return passages // the end, or a template, which is not YAML
		}
		passages = append(passages, descriptions(name, &n)...)
	}
}

// descriptions returns the values of keys such as description below a node.
func descriptions(name string, n *yaml.Node) (passages []passage) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && child.Kind == yaml.ScalarNode &&
			slices.Contains([]string{"description", "summary", "title", "detail"}, n.Content[i-1].Value) {
			p := passage{kind: 'm', file: name}
			p.add(child.Line, strings.Join(strings.Fields(child.Value), " "))
			passages = append(passages, p)
		}
		passages = append(passages, descriptions(name, child)...)
	}
	return passages
}

// commentPassages returns the blocks of whole-line comments of a file.
func commentPassages(name, text, mark string) (passages []passage) {
	p := passage{kind: 'c', file: name}
	for i, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark); ok {
			p.add(i+1, strings.TrimSpace(rest))
			continue
		}
		if p.text != "" {
			passages = append(passages, p)
			p = passage{kind: 'c', file: name}
		}
	}
	if p.text != "" {
		passages = append(passages, p)
	}
	return passages
}

var (
	questionHeading = regexp.MustCompile(`^#+ (What|Who|How|When|Which|Where|Why)\b`)
	sentenceEnd     = regexp.MustCompile(`[.!?:;]( |$)`)
)

// maxSentenceWords is the length of the longest sentence that docs may have.
const maxSentenceWords = 40

// checkMarkdown finds headings that are questions, and sentences that are too long.
func checkMarkdown(p passage) (errors []string) {
	if p.kind != 'd' {
		return nil
	}
	if questionHeading.MatchString(p.text) {
		errors = append(errors, fmt.Sprintf("%s: %q: headings are nouns that people search for", p.at(0), p.text))
	}
	if strings.HasPrefix(p.text, "\t") || strings.HasPrefix(p.text, "|") {
		return errors
	}
	start := 0
	for _, end := range append(sentenceEnd.FindAllStringIndex(p.text, -1), []int{len(p.text), len(p.text)}) {
		if n := len(strings.Fields(p.text[start:end[0]])); n > maxSentenceWords {
			errors = append(errors, fmt.Sprintf("%s: a sentence of %d words: write several, of at most %d", p.at(start), n, maxSentenceWords))
		}
		start = min(end[1], max(0, len(p.text)-1))
	}
	return errors
}

// checkDocComments finds doc comments that do not follow Go's conventions.
func checkDocComments(s source) (errors []string) {
	check := func(doc *ast.CommentGroup, name string) {
		if strings.HasPrefix(doc.Text(), name+" has ") {
			errors = append(errors, fmt.Sprintf("%s: %q: say what it is, does or returns", s.at(doc.Pos()), name+" has …"))
		}
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			check(d.Doc, d.Name.Name)
			text := strings.Join(strings.Fields(d.Doc.Text()), " ")
			if !s.isTest() && !s.apart && d.Doc != nil && returnsBool(d) && !strings.Contains(text, "reports whether") {
				errors = append(errors, fmt.Sprintf("%s: %s returns a bool: write \"%s reports whether …\"", s.at(d.Doc.Pos()), d.Name.Name, d.Name.Name))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch n := spec.(type) {
				case *ast.TypeSpec:
					check(cmp.Or(n.Doc, d.Doc), n.Name.Name)
				case *ast.ValueSpec:
					check(cmp.Or(n.Doc, d.Doc), n.Names[0].Name)
				}
			}
		}
	}
	return errors
}

// returnsBool reports whether a function has a bool as its only result.
func returnsBool(f *ast.FuncDecl) bool {
	if f.Type.Results.NumFields() != 1 {
		return false
	}
	id, ok := f.Type.Results.List[0].Type.(*ast.Ident)
	return ok && id.Name == "bool"
}

var articleFirst = regexp.MustCompile(`^"(?i:the|an?|some|no) `)

// logMethods are the methods of a slog.Logger, with the index of the message.
var logMethods = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "Log": 2, "LogAttrs": 2,
}

// checkLogMessages finds log messages that start with an article.
func checkLogMessages(s source) (errors []string) {
	if s.isTest() || s.apart {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		at, ok := logMethods[sel.Sel.Name]
		if !ok || at >= len(call.Args) {
			return true
		}
		if lit, ok := call.Args[at].(*ast.BasicLit); ok && articleFirst.MatchString(lit.Value) {
			errors = append(errors, fmt.Sprintf("%s: %s: log messages are events, such as \"rules reloaded\", without an article", s.at(lit.Pos()), lit.Value))
		}
		return true
	})
	return errors
}

var headlessHelp = regexp.MustCompile(`^"(Whether|How|What|When|Who|The most|Of those) `)

// checkMetricHelp finds help texts of metrics that are no noun phrases.
func checkMetricHelp(s source) (errors []string) {
	if s.folder() != "cmd/internal/operate/metrics" || s.isTest() {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && headlessHelp.MatchString(lit.Value) {
			errors = append(errors, fmt.Sprintf("%s: %s: help texts are noun phrases with units, such as \"Store calls that failed.\"", s.at(lit.Pos()), lit.Value))
		}
		return true
	})
	return errors
}

// TestWordsBite feeds each rule a text that breaks it and one that does not.
func TestWordsBite(t *testing.T) {
	phrases := readVocabulary(t).Phrases
	long := strings.Repeat("word ", maxSentenceWords)
	tests := []struct {
		name, file, text string
		want             []string // each in one error, in order
	}{
		{"comment over two lines", "a/a.go", "package a\n\n// f is told\n// that it ends, and tells\n// whether.\nfunc f() {}", []string{`a/a.go:4: "tells whether"`, `a/a.go:3: "is told"`}},
		{"comment", "a/a.go", "package a\n\n// f reports whether the store is unavailable.\nfunc f() bool { return true }", nil},
		{"message", "a/a.go", "package a\n\nvar x = \"the caller is refused\"", []string{"a/a.go:3"}},
		{"message of a test", "a/a_test.go", "package a\n\nvar x = \"the caller is refused\"", nil},
		{"text of others", "a/a.go", "package a\n\nvar x = \"dial: connection refused\"", nil},
		{"predicate", "a/a.go", "package a\n\n// f is whether it is full.\nfunc f() bool { return true }", []string{"reports whether"}},
		{"has", "a/a.go", "package a\n\n// f has the caller wait.\nfunc f() {}", []string{"f has …"}},
		{"log", "a/a.go", "package a\n\nfunc f() { log.Warn(\"the store failed\") }", []string{"without an article"}},
		{"status", "a/a.go", "package a\n\nfunc f() { status.Error(c, \"no rules loaded\") }", nil},
		{"metric", "cmd/internal/operate/metrics/a.go", "package metrics\n\nvar x = \"Whether the store is up.\"", []string{"noun phrases"}},
		{"heading", "a.md", "# How to count\n", []string{"headings are nouns"}},
		{"long sentence", "a.md", long + "word.", []string{"a sentence of 41 words"}},
		{"two sentences", "a.md", long + ". " + long, nil},
		{"code", "a.md", "```\n" + long + "word\n```\n", nil},
		{"paragraph", "a.md", "The key is worn\noff.", []string{`a.md:1: "worn off"`}},
		{"description", "a.yaml", "description: >\n  who\n  whoever asks\n", []string{`"whoever"`}},
		{"comment of YAML", "a.yaml", "a: 1\n# nobody\n", []string{"a.yaml:2"}},
		{"comment of Lua", "a.lua", "-- nobody\n", []string{"a.lua:1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var errors []string
			var passages []passage
			if path.Ext(tt.file) == ".go" {
				s := parse(t, tt.file, tt.text)
				passages = goPassages([]source{s})
				errors = slices.Concat(checkDocComments(s), checkLogMessages(s), checkMetricHelp(s))
			} else {
				passages = readerOf(tt.file)(tt.file, tt.text)
			}
			for _, p := range passages {
				errors = slices.Concat(errors, checkPhrases(p, phrases), checkMarkdown(p))
			}
			compare(t, errors, tt.want)
		})
	}
}
