package doctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programDir is the directory of the built program, or empty before the first call of program.
var programDir string

// program builds the program once for all tests and returns its directory.
var program = sync.OnceValues(func() (string, error) {
	build := exec.Command("go", "build", "-o", filepath.Join(programDir, "sluice"), "./cmd/sluice")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return programDir, nil
})

func TestMain(m *testing.M) {
	if address := os.Getenv(upstreamAddress); address != "" {
		fmt.Fprintln(os.Stderr, serveUpstream(address))
		os.Exit(1)
	}
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
