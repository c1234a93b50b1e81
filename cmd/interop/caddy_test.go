package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// startServe starts `sluice serve` with the rules of examples/auth, and returns its address and a function that stops
// it.
func startServe(t *testing.T) (address string, end func()) {
	t.Helper()
	rules, err := filepath.Abs("../../examples/auth/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	address = tcptest.FreeAddress(t)
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	cfg := fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: %q}, admin: {address: off}}\nrules: {paths: [%q]}\n", address, rules)
	if err := os.WriteFile(file, []byte(cfg), 0o600); err != nil {
		t.Fatal(err)
	}
	return address, forwardauthtest.Start(t, address, exec.Command(sluice(t), "serve", "--config", file))
}

func startCaddy(t *testing.T, sluice string, edit func(caddyfile string) string) forwardauthtest.Proxy {
	t.Helper()
	address := tcptest.FreeAddress(t)
	directory := forwardauthtest.Example(t, "../../examples/caddy", sluice, address, forwardauthtest.App(t))
	file := filepath.Join(directory, "Caddyfile")
	if edit != nil {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(edit(string(b))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(caddy(t), "run", "--config", file)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+directory, "XDG_CONFIG_HOME="+directory)
	forwardauthtest.Start(t, address, cmd)
	return forwardauthtest.Proxy{Address: address}
}

// TestCaddy checks that clients of Caddy are limited, get the rate limit headers, and cannot evade the limit.
func TestCaddy(t *testing.T) {
	address, end := startServe(t)
	proxy := startCaddy(t, address, nil)
	proxy.Run(t)
	end()
	proxy.CheckAway(t, false)
}

// TestCaddyForwardAuth checks that the short form in the example denies as well.
func TestCaddyForwardAuth(t *testing.T) {
	address, _ := startServe(t)
	proxy := startCaddy(t, address, func(s string) string {
		begin, after := strings.Index(s, "#   forward_auth"), strings.Index(s, "# If Sluice is away")
		short := strings.ReplaceAll(strings.TrimSuffix(s[begin:after], "#\n"), "#   ", "")
		begin, after = strings.Index(s, "\troute {"), strings.LastIndex(s, "reverse_proxy")
		return s[:begin] + short + s[after:strings.LastIndex(s, "\t}")] + "}\n"
	})
	proxy.RunSilent(t)
}
