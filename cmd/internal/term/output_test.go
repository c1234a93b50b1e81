package term_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// Only terminals get colours, and not if NO_COLOR is set.
func TestColour(t *testing.T) {
	if term.NewStyle(new(bytes.Buffer)).On {
		t.Error("output to a buffer is coloured")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if term.NewStyle(file).On {
		t.Error("output to a file is coloured")
	}
	t.Setenv("NO_COLOR", "1")
	if term.NewStyle(os.Stdout).On {
		t.Error("output is coloured in spite of NO_COLOR")
	}
	if got := (term.Style{On: true}).Red("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("red is %q", got)
	}
}
