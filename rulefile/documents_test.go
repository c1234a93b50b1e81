package rulefile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
)

// The number of documents in a file, and in all files, is bounded.
func TestManyDocuments(t *testing.T) {
	const perFile = 1000
	full := strings.Repeat("---\n", perFile)
	var files []rulefile.File
	for i := range rulefile.MaxDocuments / perFile {
		files = append(files, rulefile.File{Name: fmt.Sprint(i, ".yaml"), Data: []byte(full)})
	}
	for _, test := range []struct {
		files []rulefile.File
		want  string
	}{
		{append(files[:len(files):len(files)], rulefile.File{Name: "more.yaml", Data: []byte("rules: []\n")}), "more.yaml: more than 10000 documents in total"},
		{[]rulefile.File{{Name: "one.yaml", Data: []byte(full + "---\nrules: []\n")}}, "one.yaml:1:1: the file has 1001 documents, at most 1000 are read"},
	} {
		_, err := rulefile.LoadFiles(rulefile.Options{}, test.files...)
		if got := fmt.Sprint(err); !strings.Contains(got, test.want) {
			t.Errorf("got %s, want %q", got, test.want)
		}
	}
}

// A file of empty documents is empty, and so an error.
func TestEmptyDocuments(t *testing.T) {
	_, err := rulefile.LoadFiles(rulefile.Options{}, rulefile.File{Name: "f", Data: []byte("---\n---\n# nothing\n")})
	if err == nil || !strings.Contains(err.Error(), "the file is empty") {
		t.Error(err)
	}
}
