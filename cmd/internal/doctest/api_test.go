package doctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// checkAPI is the part of docs/api.md about the check API: its heading, and the line behind its end.
func checkAPI(t *testing.T) (from, to int) {
	t.Helper()
	for i, line := range strings.Split(read(t, "docs/api.md"), "\n") {
		switch {
		case line == "## Check API":
			from = i + 1
		case from > 0 && to == 0 && strings.HasPrefix(line, "## "):
			to = i + 1
		}
	}
	if from == 0 {
		t.Fatal("docs/api.md has no part about the check API")
	}
	if to == 0 {
		to = 1 << 30
	}
	return from, to
}

// Who follows docs/api.md command by command, with the files that it shows, gets the answers that it shows.
func TestCheckAPIDocs(t *testing.T) {
	from, to := checkAPI(t)
	within := func(b block) bool { return b.line > from && b.line < to }
	address := tcptest.FreeAddress(t)
	dir := t.TempDir()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, b := range blocks(t, "docs/api.md", "yaml") {
		if within(b) {
			files = append(files, b.text)
		}
	}
	if len(files) != 2 {
		t.Fatalf("it shows %d files, and not rules.yaml and sluice.yaml", len(files))
	}
	files[1] += "listeners: {grpc: {address: off}, http: {address: '" + address + "'}}\n"
	for i, name := range []string{"rules.yaml", "sluice.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(files[i]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := exec.Command(filepath.Join(bin, "sluice"), "serve", "--config", "sluice.yaml")
	serve.Dir = dir
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(os.Interrupt)
		_ = serve.Wait()
	}()
	sh := func(command string) string {
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(command, "127.0.0.1:8080", address))
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return strings.ReplaceAll(string(out), "\r", "")
	}
	sh("curl -s --retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 30 http://127.0.0.1:8080/readyz")
	commands := 0
	for _, b := range blocks(t, "docs/api.md", "console") {
		if !within(b) {
			continue
		}
		for _, shown := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			command, want, _ := strings.Cut(shown, "\n")
			commands++
			if out := sh(command); !shows(want, out) {
				t.Errorf("docs/api.md:%d: %s prints\n%s", b.line, command, out)
			}
		}
	}
	if commands < 7 {
		t.Errorf("only %d commands were found", commands)
	}
}
