package doctest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// The gateway configuration in the README is that of the example. It is valid and limits an unmodified API.
func TestGatewayExample(t *testing.T) {
	t.Parallel()
	const example = "examples/gateway"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Method, r.URL.Path) }))
	defer api.Close()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, example))); err != nil {
		t.Fatal(err)
	}
	address := tcptest.FreeAddress(t)
	cfg := strings.NewReplacer("http://127.0.0.1:9000", api.URL, "127.0.0.1:8000", address, "listeners:\n",
		fmt.Sprintf("listeners:\n  http: {address: %q}\n  admin: {address: \"off\"}\n", tcptest.FreeAddress(t))).Replace(read(t, example+"/sluice.yaml"))
	if err := os.WriteFile(filepath.Join(dir, "sluice.yaml"), []byte(cfg), 0o600); err != nil {
		t.Fatal(err)
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	sluice := func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, "sluice"), args...)
		cmd.Dir = dir
		return cmd
	}
	for _, args := range [][]string{{"check", "sluice.yaml"}, {"test"}, {"fmt", "--check", "rules.yaml", "rules_test.yaml"}} {
		if out, err := sluice(args...).CombinedOutput(); err != nil {
			t.Errorf("sluice %v: %v\n%s", args, err, out)
		}
	}
	service := sluice("serve", "--config", "sluice.yaml")
	var log strings.Builder
	service.Stderr = &log
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = service.Process.Signal(os.Interrupt)
		if err := service.Wait(); err != nil || strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the service exited with %v\n%s", err, &log)
		}
	}()
	post := func(path, header string) string {
		out, err := exec.Command("curl", "-si", "--retry", "50", "--retry-connrefused", "--retry-delay", "0", "--retry-max-time", "30",
			"-X", "POST", "-H", header, "http://"+address+path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.ReplaceAll(string(out), "\r", "")
	}
	for i := range 6 {
		got, want := post("/rewards", "X-Device-Id: a1"), "HTTP/1.1 200 OK\n"
		if i == 5 {
			want = "HTTP/1.1 202 Accepted\n"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("reward %d: %s", i+1, got)
		}
	}
}

// TestGatewayDocs checks that the configurations that the pages about the gateway show are valid.
func TestGatewayDocs(t *testing.T) {
	shown := blocks(t, "docs/gateway.md", "yaml")
	for _, doc := range []string{"docs/upstreams.md", "docs/cors.md", "docs/tls.md"} {
		more := blocks(t, doc, "yaml")
		if len(more) == 0 {
			t.Errorf("%s shows no configuration", doc)
		}
		shown = append(shown, more...)
	}
	for _, b := range shown {
		if _, err := config.Parse("sluice.yaml", []byte(b.text), func(string) (string, bool) { return "", false }); err != nil {
			t.Errorf("%s:%d: %v", b.doc, b.line, err)
		}
	}
	if len(shown) < 5 {
		t.Errorf("they show %d configurations", len(shown))
	}
}

// TestQueueAndLoadSheddingDocs checks that the files that docs/queue.md and docs/load-shedding.md show are valid.
func TestQueueAndLoadSheddingDocs(t *testing.T) {
	for doc, want := range map[string]int{"docs/queue.md": 3, "docs/load-shedding.md": 1} {
		shown := blocks(t, doc, "yaml")
		for _, b := range shown {
			if err := readShownAs("shown.yaml", b.text); err != nil {
				t.Errorf("%s:%d: %v", b.doc, b.line, err)
			}
		}
		if len(shown) != want {
			t.Errorf("%s shows %d files, want %d", doc, len(shown), want)
		}
	}
}

// TestCORSDocs runs the configuration and the commands of docs/cors.md.
func TestCORSDocs(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/cors.md")
	_, section, found := strings.Cut(page, "\n## Example\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, cfg, _ := strings.Cut(section, "```yaml\n")
	cfg, rest, _ := strings.Cut(cfg, "```")
	_, rules, shown := strings.Cut(cfg, "[rules.yaml]} # ")
	rules, _, _ = strings.Cut(rules, "\n")
	_, commands, _ := strings.Cut(rest, "```console\n")
	commands, _, _ = strings.Cut(commands, "```")
	if !found || !shown {
		t.Fatal("docs/cors.md has no configuration with rules")
	}
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	address, dir := tcptest.FreeAddress(t), t.TempDir()
	cfg = strings.NewReplacer("http://127.0.0.1:9000", api.URL, "127.0.0.1:8000", address, "listeners:\n",
		fmt.Sprintf("listeners:\n  http: {address: %q}\n  grpc: {address: \"off\"}\n  admin: {address: \"off\"}\n", tcptest.FreeAddress(t))).Replace(cfg)
	for name, text := range map[string]string{"sluice.yaml": cfg, "rules.yaml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	service := exec.Command(filepath.Join(bin, "sluice"), "serve", "--config", "sluice.yaml")
	service.Dir = dir
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = service.Process.Signal(os.Interrupt)
		_ = service.Wait()
	}()
	commands = "$ curl -s --retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 30 http://127.0.0.1:8000/ready\n" + commands
	for i, command := range typed(commands) {
		out, err := exec.Command("bash", "-c", strings.ReplaceAll(command[0], "127.0.0.1:8000", address)).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != strings.TrimSpace(command[1]) {
			t.Errorf("command %d: %s prints %q, %v; want %q", i, command[0], out, err, command[1])
		}
	}
}
