package doctest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The examples that exit on their own print the expected output.
func TestExamples(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"quickstart":      "request 1: allowed, 4 remain\n",
		"multiple-limits": "ada: allowed\nada: allowed\nada: denied by posts-per-user\nbob: allowed\nbob: denied by posts-per-tenant\n",
		"llmtokens":       "reserve 2000, settle at 700: 9300 remain\nreserve 2000, settle at 4500: 4800 remain\nreserve 6000: denied, 4800 remain\n",
		"wait":            "deadline exceeded: true\n",
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

// Every example is listed in TestExamples, or is a server that does not exit and is only compiled.
func TestNoExampleIsForgotten(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root, "examples/*/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 7 {
		t.Errorf("found %d examples: add the new one to TestExamples", len(found))
	}
}
