package doctest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The examples that end by themselves print what they should.
func TestExamples(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"quickstart":      "request 1: allowed, 4 remain\n",
		"multiple-limits": "ada: allowed\nada: allowed\nada: denied by posts-per-user\nbob: allowed\nbob: denied by posts-per-tenant\n",
		"llmtokens":       "reserve 2000, settle at 700: 9300 remain\nreserve 2000, settle at 4500: 4800 remain\nreserve 6000: denied, 4800 remain\n",
		"wait":            "in a hurry: true\n",
		"grpc":            "ResourceExhausted",
	} {
		cmd := exec.Command("go", "run", "./examples/"+name)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("examples/%s: %v\n%s", name, err, out)
		}
	}
}

// Every example is listed here or is a server that does not end, which compiling must do for.
func TestNoExampleIsForgotten(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root, "examples/*/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 7 {
		t.Errorf("there are %d examples: run the new one in TestExamples", len(found))
	}
}
