package doctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// The commands of docs/check-api.md, with the files that it shows, print the output that it shows.
func TestCheckAPIDocs(t *testing.T) {
	const page = "docs/check-api.md"
	address := tcptest.FreeAddress(t)
	dir := t.TempDir()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, b := range blocks(t, page, "yaml") {
		files = append(files, b.text)
	}
	if len(files) != 2 {
		t.Fatalf("%s shows %d files instead of rules.yaml and sluice.yaml", page, len(files))
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
	for _, b := range blocks(t, page, "console") {
		for _, shown := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			command, want, _ := strings.Cut(shown, "\n")
			commands++
			if out := sh(command); !shows(want, out) {
				t.Errorf("%s:%d: %s prints\n%s", page, b.line, command, out)
			}
		}
	}
	if commands < 7 {
		t.Errorf("only %d commands were found", commands)
	}
}
