package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

func TestMain(m *testing.M) {
	code := redistest.Run(m)
	os.RemoveAll(binaries.dir)
	os.Exit(code)
}

// binaries are built on first use, into one folder.
var binaries struct {
	mu   sync.Mutex // guards the fields below
	dir  string
	done map[string]error
}

// repository is the folder in which Sluice is built, with the workspace; others are built outside of it.
const repository = "../.."

// build runs go build once for each target, in the folder from, and returns the folder of the binaries.
func build(t testing.TB, from, target string) string {
	t.Helper()
	b := &binaries
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done == nil {
		dir, err := os.MkdirTemp("", "interop")
		if err != nil {
			t.Fatal(err)
		}
		b.dir, b.done = dir, map[string]error{}
	}
	what := from + " " + target
	err, done := b.done[what]
	if !done {
		cmd := exec.Command("go", "build", "-o", b.dir+string(filepath.Separator), target)
		cmd.Dir = from
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if from == repository {
			cmd.Env = append(os.Environ(), "GOWORK=") // the go command finds the workspace
		}
		if out, fault := cmd.CombinedOutput(); fault != nil {
			err = fmt.Errorf("go build %s: %w\n%s", target, fault, out)
		}
		b.done[what] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.dir
}

// reference returns the path of one of the reference's binaries: service_cmd, client_cmd or config_check_cmd.
func reference(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(build(t, "reference", "tool"), name)
}

// caddy returns the path of Caddy. The first build takes minutes.
func caddy(t testing.TB) string {
	t.Helper()
	return filepath.Join(build(t, "caddy", "tool"), "caddy")
}

// sluice returns the path of Sluice's binary.
func sluice(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("SLUICE_BINARY"); path != "" {
		return path
	}
	return filepath.Join(build(t, repository, "./cmd/sluice"), "sluice")
}

// soak multiplies a count in long runs.
func soak(n int) int {
	if os.Getenv("SLUICE_SOAK") != "" {
		return 10 * n
	}
	return n
}
