package archtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the documents with a table of folders.
var documents = map[string]struct {
	whole bool // every declared folder has its own row; otherwise a row for a parent suffices
}{
	"docs/architecture.md": {whole: true},
	"CONTRIBUTING.md":      {},
}

// TestTables checks that the tables of the documents and mayImport contain the same folders.
func TestTables(t *testing.T) {
	for name, table := range documents {
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		exists := func(folder string) bool {
			info, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(folder)))
			return err == nil && info.IsDir()
		}
		for _, fault := range checkTable(foldersIn(string(text)), slices.Sorted(maps.Keys(mayImport)), table.whole, exists) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

var (
	folderTable = regexp.MustCompile(`(?m)^\| folder \| content \|\n\|---\|---\|\n((?:\|.*\n)+)`)
	folderName  = regexp.MustCompile("`([^`]+)`")
)

// foldersIn returns the folders in the first column of the table of folders.
func foldersIn(text string) (folders []string) {
	found := folderTable.FindStringSubmatch(text)
	if found == nil {
		return nil
	}
	for row := range strings.Lines(found[1]) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, name := range folderName.FindAllStringSubmatch(first, -1) {
			folders = append(folders, name[1])
		}
	}
	return folders
}

// groups are folders whose subfolders need no row in a whole table.
var groups = []string{"examples"}

// checkTable compares a table with the declared folders.
func checkTable(table, declared []string, whole bool, exists func(folder string) bool) (faults []string) {
	if len(table) == 0 {
		return []string{"there is no table with the columns folder and content"}
	}
	below := func(folder, above string) bool { return strings.HasPrefix(folder, above+"/") }
	for i, folder := range table {
		switch {
		case slices.Contains(table[:i], folder):
			faults = append(faults, fmt.Sprintf("%s is in the table twice", folder))
		case !exists(folder):
			faults = append(faults, fmt.Sprintf("%s is in the table but does not exist", folder))
		}
	}
	for _, folder := range declared {
		covered := slices.ContainsFunc(table, func(row string) bool {
			return row == folder || below(folder, row) && (!whole || slices.Contains(groups, row))
		})
		if !covered {
			faults = append(faults, fmt.Sprintf("%s is declared in arch_test.go but not in the table: describe its content", folder))
		}
	}
	return faults
}

// TestTablesBite checks that violations are detected.
func TestTablesBite(t *testing.T) {
	text := "| folder | content |\n|---|---|\n| `a`, `b/c` | `x` |\n| `examples` | y |\n\n`z`\n"
	if got := foldersIn(text); !slices.Equal(got, []string{"a", "b/c", "examples"}) {
		t.Fatal(got)
	}
	there := func(folder string) bool { return folder != "gone" }
	for _, tt := range []struct {
		table, declared []string
		whole           bool
		want            []string
	}{
		{nil, []string{"a"}, true, []string{"there is no table"}},
		{[]string{"a", "examples"}, []string{"a", "examples/x"}, true, nil},
		{[]string{"a"}, []string{"a", "a/b"}, true, []string{"a/b is declared"}},
		{[]string{"a"}, []string{"a", "a/b"}, false, nil},
		{[]string{"a"}, []string{"ab"}, false, []string{"ab is declared"}},
		{[]string{"a", "gone"}, []string{"a"}, false, []string{"gone is in the table but does not exist"}},
		{[]string{"a", "a"}, []string{"a"}, false, []string{"a is in the table twice"}},
	} {
		compare(t, checkTable(tt.table, tt.declared, tt.whole, there), tt.want)
	}
}
