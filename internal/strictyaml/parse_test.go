package strictyaml_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

var update = flag.Bool("update", false, "write the results of the transcripts")

// Transcripts are cases of "==== case: NAME", a file, "==== result" and its errors or its tree.
func TestTranscripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("there are no transcripts", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) { transcript(t, name) })
	}
}

func transcript(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, c := range strings.Split(string(data), "==== case: ")[1:] {
		title, rest, _ := strings.Cut(c, "\n")
		input, want, found := strings.Cut(rest, "==== result\n")
		if !found && !*update {
			t.Fatalf("case %q has no result", title)
		}
		got := result([]byte(input))
		if got != want && !*update {
			t.Errorf("%s:\n%s\ngot\n%s\nwant\n%s", title, input, got, want)
		}
		fmt.Fprintf(&out, "==== case: %s\n%s==== result\n%s", title, input, got)
	}
	if *update {
		if err := os.WriteFile(name, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func result(input []byte) string {
	var b strings.Builder
	root, faults := strictyaml.Parse(input)
	for _, f := range faults {
		fmt.Fprintf(&b, "%d:%d: %s\n", f.Line, f.Column, f.Msg)
	}
	if root != nil {
		dump(&b, root, "")
	}
	return b.String()
}

func lacks(n *strictyaml.Node) string {
	text := ""
	if len(n.Lost) > 0 {
		text = fmt.Sprintf(" lost %q", n.Lost)
	}
	if n.LostText != "" {
		text += fmt.Sprintf(" in %q", n.LostText)
	}
	if n.Partial {
		text += " partial"
	}
	return text
}

func dump(b *strings.Builder, n *strictyaml.Node, indent string) {
	switch n.Kind {
	case strictyaml.Null:
		fmt.Fprintf(b, "null @%d:%d\n", n.Line, n.Column)
	case strictyaml.Scalar:
		style := [...]string{"text", "int", "float", "bool"}[n.Type]
		if n.Quoted {
			style = "quoted"
		}
		fmt.Fprintf(b, "%s %q @%d:%d\n", style, n.Text, n.Line, n.Column)
	case strictyaml.Mapping:
		fmt.Fprintf(b, "mapping @%d:%d%s\n", n.Line, n.Column, lacks(n))
		for _, f := range n.Fields {
			fmt.Fprintf(b, "%s  %q @%d:%d: ", indent, f.Key.Text, f.Key.Line, f.Key.Column)
			dump(b, f.Value, indent+"  ")
		}
	case strictyaml.Sequence:
		fmt.Fprintf(b, "sequence @%d:%d%s\n", n.Line, n.Column, lacks(n))
		for _, item := range n.Items {
			b.WriteString(indent + "  - ")
			dump(b, item, indent+"  ")
		}
	}
}

// laughs returns a "billion laughs" file: each level is ten times as large as the one before.
func laughs(levels int) []byte {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < levels; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return []byte(b.String())
}

func TestBoundsAreKept(t *testing.T) {
	bombs := map[string]struct {
		data      []byte
		megabytes uint64
		says      string
	}{
		"billion laughs":    {laughs(10), 1, "more than 100000 values"},
		"many levels":       {laughs(2000), 8, "more than 100000 values"},
		"flow, very deep":   {[]byte(strings.Repeat("[", 1<<20)), 32, "more than 100000 values"},
		"flow, deep":        {[]byte(strings.Repeat("[", 33) + strings.Repeat("]", 33)), 1, "deeper than 32"},
		"flow, not closed":  {[]byte(strings.Repeat("[", 20000)), 32, "deeper than 32"},
		"block, deep":       {[]byte(strings.Repeat("- ", 5000) + "x"), 32, "deeper than 32"},
		"block, very deep":  {[]byte(strings.Repeat("- ", 50000) + "x"), 32, "deeper than 32"},
		"keys, very deep":   {[]byte(strings.Repeat("? ", 50000)), 32, "deeper than 32"},
		"many small values": {[]byte("[" + strings.Repeat("a,", 1<<19-1) + "]"), 1, "more than 100000 values"},
		"many values":       {[]byte("[" + strings.Repeat("a ,", 190_000) + "]"), 80, "more than 100000 values"},
		"many comments":     {[]byte(strings.Repeat("a:\n# c\n", 149_000)), 1, "more than 100000 values"},
		"too large":         {make([]byte, 1<<20+1), 1, "at most 1048576 are read"},
		"itself":            {[]byte("a: &a [*a]"), 1, "inside its own anchor"},
		"deep by aliases":   {[]byte(deepAliases()), 1, "deeper than 32"},
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, faults := strictyaml.Parse(bomb.data)
			runtime.ReadMemStats(&after)
			if len(faults) != 1 || !strings.Contains(faults[0].Msg, bomb.says) || faults[0].Line == 0 || faults[0].Column == 0 {
				t.Errorf("got %+v, want one error with %q", faults, bomb.says)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > bomb.megabytes<<20 {
				t.Errorf("allocated %d bytes, want at most %d MiB", used, bomb.megabytes)
			}
		})
	}
}

func deepAliases() string {
	const twelve = "[[[[[[[[[[[[%s]]]]]]]]]]]]\n"
	return fmt.Sprintf("a: &a "+twelve+"b: &b "+twelve+"c: "+twelve, "x", "*a", "*b")
}

// Aliases of small values are allowed, and share their node.
func TestAliasesAreShared(t *testing.T) {
	root, faults := strictyaml.Parse([]byte("a: &x {k: [1, 2]}\nb: *x\nc: [*x, *x]\n"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if root.Field("a") != root.Field("b") || root.Field("c").Items[0] != root.Field("a") {
		t.Error("an alias was copied")
	}
}

func TestCharacters(t *testing.T) {
	tests := map[string]struct{ input, want string }{
		"not UTF-8":               {"a: 1\nb: \xff\n", "2:4: the file is not UTF-8"},
		"UTF-16":                  {"\xff\xfea\x00", "1:1: the file is not UTF-8"},
		"NUL":                     {"a: \x00\n", "1:4: invisible character U+0000"},
		"escape":                  {"a: é\x1b\n", "1:5: invisible character U+001B"},
		"delete":                  {"a: \x7f\n", "1:4: invisible character U+007F"},
		"next line":               {"a: \u0085\n", "1:4: invisible character U+0085"},
		"line separator":          {"a: \u2028\n", "1:4: invisible character U+2028"},
		"byte order mark inside":  {"a: \ufeff\n", "1:4: invisible character U+FEFF"},
		"carriage return alone":   {"a: 1\rb: 2\n", "1:5: a carriage return does not end a line"},
		"NUL by escape":           {"a: \"\\0\"\n", "1:4: the text contains a control character"},
		"key with NUL by escape":  {"\"\\0\": 1\n", "1:1: the text contains a control character"},
		"byte order mark at once": {"\ufeffa: 1\n", "mapping @1:1\n  \"a\" @1:1: int \"1\" @1:4"},
		"lines of Windows":        {"a: 1\r\nb: 2\r\n", "\"b\" @2:1: int \"2\" @2:4"},
		"nothing":                 {"", "null @1:1"},
		"a mark and nothing":      {"\ufeff", "null @1:1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := result([]byte(test.input)); !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q in it", got, test.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	names, _ := filepath.Glob("testdata/*.txt")
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range strings.Split(string(data), "==== case: ")[1:] {
			_, rest, _ := strings.Cut(c, "\n")
			input, _, _ := strings.Cut(rest, "==== result\n")
			f.Add([]byte(input))
		}
	}
	f.Add(laughs(10))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, faults := strictyaml.Parse(data)
		if root == nil && len(faults) == 0 {
			t.Fatal("neither a tree nor an error")
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, fault := range faults {
			if fault.Msg == "" || fault.Line < 1 || fault.Line > lines+1 || fault.Column < 1 {
				t.Errorf("error without a position: %+v", fault)
			}
		}
		if root != nil {
			if nodes := check(t, root, 1); nodes > strictyaml.MaxNodes {
				t.Errorf("%d nodes", nodes)
			}
		}
	})
}

// check walks a tree and counts its nodes; aliased values count for each alias.
func check(t *testing.T, n *strictyaml.Node, depth int) int {
	t.Helper()
	if depth > strictyaml.MaxDepth || n.Line < 1 || n.Column < 1 {
		t.Fatalf("node %+v at depth %d", n, depth)
	}
	nodes := 1
	seen := make(map[string]bool)
	for _, f := range n.Fields {
		if seen[f.Key.Text] {
			t.Fatalf("key %q twice", f.Key.Text)
		}
		seen[f.Key.Text] = true
		nodes += 1 + check(t, f.Value, depth+1)
	}
	for _, item := range n.Items {
		nodes += check(t, item, depth+1)
	}
	return nodes
}

// A file that exceeds the bound is counted once, and one at the bound is not counted.
func TestCounts(t *testing.T) {
	size := func(n int) string { return "a: " + strings.Repeat("x", n-3) }
	depth := func(n int) string { return strings.Repeat("[", n-1) + "1" + strings.Repeat("]", n-1) }
	nodes := func(n int) string { // the mapping, its keys and values, and aliases of 100 values
		return "a: &a [" + strings.Repeat("1,", 98) + "1]\nb: [" + strings.Repeat("*a,", n/100-2) + strings.Repeat("1,", 95+n%100) + "1]"
	}
	for name, c := range map[string]struct {
		file func(int) string
		most int
	}{"size": {size, strictyaml.MaxBytes}, "depth": {depth, strictyaml.MaxDepth}, "values": {nodes, strictyaml.MaxNodes}} {
		was := bounds.YAML.Count()
		if _, faults := strictyaml.Parse([]byte(c.file(c.most))); len(faults) > 0 || bounds.YAML.Count() != was {
			t.Errorf("%s: at the border it was reached %d times: %.200v", name, bounds.YAML.Count()-was, faults)
		}
		if _, faults := strictyaml.Parse([]byte(c.file(c.most + 1))); len(faults) != 1 || bounds.YAML.Count() != was+1 {
			t.Errorf("%s: beyond it was reached %d times: %.200v", name, bounds.YAML.Count()-was, faults)
		}
	}
	was := bounds.YAML.Count()
	if _, faults := strictyaml.Parse([]byte("[" + strings.Repeat("1,", 3*strictyaml.MaxNodes) + "1]")); len(faults) != 1 || bounds.YAML.Count() != was+1 {
		t.Errorf("far beyond it was reached %d times: %.200v", bounds.YAML.Count()-was, faults)
	}
}
