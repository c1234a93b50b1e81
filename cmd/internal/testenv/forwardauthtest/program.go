package forwardauthtest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// port returns the port of an address, with the colon.
func port(address string) string { return address[strings.LastIndexByte(address, ':'):] }

// Example copies a proxy's example and replaces its ports: the examples have Sluice on 8080, the proxy on 8000 and the
// application on 9000. replace contains pairs of an old text, which must occur once, and a new text.
func Example(t testing.TB, directory, sluice, proxy, app string, replace ...string) (copied string) {
	t.Helper()
	copied = t.TempDir()
	all := ""
	files, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	r := strings.NewReplacer(append([]string{":8080", port(sluice), ":8000", port(proxy), ":9000", port(app)}, replace...)...)
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(directory, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all += string(content)
		if err := os.WriteFile(filepath.Join(copied, f.Name()), []byte(r.Replace(string(content))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(all, replace[i]) != 1 {
			t.Fatalf("%s has %q %d times", directory, replace[i], strings.Count(all, replace[i]))
		}
	}
	return copied
}

// Need skips the test if a program is not installed, or fails it if the environment has CI=true.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed, and with CI=true no test may be skipped: apt-get install %[1]s", program)
		}
		t.Skipf("%s is not installed: apt-get install %[1]s", program)
	}
}

// Start runs a program until the test ends or end is called, and returns when the program listens.
func Start(t testing.TB, listens string, cmd *exec.Cmd) (end func()) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, &out, dieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	end = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("%s says:\n%s", cmd.Path, &out)
		}
	})
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		conn, err := net.Dial("tcp", listens)
		if err == nil {
			conn.Close()
			tick.Stop()
			return end
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("%s ended:\n%s", cmd.Path, &out)
		}
	}
}
