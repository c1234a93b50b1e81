package doctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programDir is where the program is, once a test has asked for it.
var programDir string

// program builds the program once for all tests, and tells the directory that it is in.
var program = sync.OnceValues(func() (string, error) {
	build := exec.Command("go", "build", "-o", filepath.Join(programDir, "sluice"), "./cmd/sluice")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return programDir, nil
})

func TestMain(m *testing.M) {
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	var err error
	if programDir, err = os.MkdirTemp("", "sluice-doctest"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programDir)
	return m.Run()
}
