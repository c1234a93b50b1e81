//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/authn"
)

// program is the program as it would be started with arguments.
func program(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	return c
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// hangs is long enough for what does not hang, on a busy machine too.
const hangs = 30 * time.Second

// ends runs a command to its end and returns its exit code and output. One that hangs fails the test.
func ends(t *testing.T, c *exec.Cmd) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(hangs, func() { _ = c.Process.Kill() })
	_ = c.Wait() // its exit code is looked at
	if !stuck.Stop() {
		t.Errorf("%v hangs:\n%s", c.Args[1:], out.String())
	}
	return c.ProcessState.ExitCode(), out.String()
}

// A FIFO that nothing writes to, wherever the service names a file, is an error at the start that says so.
func TestServeRefusesFIFOs(t *testing.T) {
	const tls = "listeners: {http: {address: '127.0.0.1:0', tls: {cert: %[1]q, key: %[1]q}}, grpc: {address: off}, admin: {address: off}}\n"
	const gateway = "listeners: {gateway: {address: '127.0.0.1:0'}, http: {address: off}, grpc: {address: off}, admin: {address: off}}\n" +
		"gateway: {upstreams: {u: {servers: ['https://127.0.0.1:1']%[2]s}}, routes: [{upstream: u}]}\n"
	for name, cfg := range map[string]string{
		"rules":      "rules: {paths: [%q]}\n",
		"snapshot":   "store: {snapshot: %q}\n",
		"password":   "store: {kind: redis, url: 'redis://127.0.0.1:1', password_file: %q}\n",
		"store CA":   "store: {kind: redis, url: 'rediss://127.0.0.1:1', tls: {ca: %q}}\n",
		"store cert": "store: {kind: redis, url: 'rediss://127.0.0.1:1', tls: {cert: %[1]q, key: %[1]q}}\n",
		"token":      "admin: {token_file: %q}\n",
		"cert":       tls,
		"client CA":  "listeners: {http: {address: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem, client_ca: %q}}, grpc: {address: off}, admin: {address: off}}\n",
		"check":      "check: {secret_file: %q}\n",
		"logging":    "logging: {denials: sampled, secret_file: %q}\n",
		"tracing":    "tracing: {endpoint: 'http://127.0.0.1:1', headers_file: %q}\n",
		"resp":       "resp: {password_file: %q}\nlisteners: {resp: {address: '127.0.0.1:0'}, http: {address: off}, grpc: {address: off}, admin: {address: off}}\n",
		"API keys":   gateway + "authentication: {api_keys: {files: [%[1]q]}}\n",
		"users":      gateway + "authentication: {basic: {files: [%[1]q]}}\n",
		"secret":     gateway + "authentication: {jwt: {secret_file: %[1]q, algorithms: [HS256]}}\n",
		"JWKS":       gateway + "authentication: {jwt: {jwks_file: %[1]q, algorithms: [RS256]}}\n",
		"queue key":  gateway + "queue: {directory: queue, key_file: %[1]q}\n",
		"upstream":   strings.Replace(gateway, "%[2]s", ", tls: {ca: %[1]q}", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := fifo(t)
			file := filepath.Join(t.TempDir(), "sluice.yaml")
			write(t, file, strings.ReplaceAll(fmt.Sprintf(strings.ReplaceAll(cfg, "%[2]s", ""), pipe), "%!(EXTRA string="+pipe+")", ""))
			code, out := ends(t, program("serve", "--config", file))
			if code != exitWrong || !strings.Contains(out, "is a FIFO") {
				t.Errorf("exit %d:\n%s", code, out)
			}
		})
	}
	t.Run("configuration", func(t *testing.T) {
		t.Parallel()
		if code, out := ends(t, program("serve", "--config", fifo(t))); code != exitWrong || !strings.Contains(out, "is a FIFO") {
			t.Errorf("exit %d:\n%s", code, out)
		}
	})
}

// Files that become FIFOs, directories or nothing while the service runs leave what was read before, and the service ends when
// it is told to.
func TestServeFilesBecomeFIFOs(t *testing.T) {
	for name, become := range map[string]func(path string) error{
		"FIFO":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"device":    func(path string) error { return os.Symlink("/dev/zero", path) },
		"socket": func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rules, keys := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "k.yaml")
			access := filepath.Join(dir, "access")
			write(t, rules, "rules: [{name: a, limit: 1/s}]\n")
			write(t, keys, "keys: []\n")
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nauthentication: {api_keys: {files: [%q]}}\n"+
				"gateway: {upstreams: {u: {servers: ['http://127.0.0.1:1']}}, routes: [{upstream: u}], access_log: {file: %q}}\n"+
				"listeners: {gateway: {address: '127.0.0.1:0'}, grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}}\n", rules, keys, access))
			for _, path := range []string{rules, keys, access} {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := become(path); err != nil {
					t.Fatal(err)
				}
			}
			p.signal(t, syscall.SIGHUP)
			p.await(t, "rules cannot be used")
			p.signal(t, syscall.SIGTERM)
			select {
			case <-p.ended:
			case <-time.After(hangs):
				t.Errorf("it does not end:\n%s", strings.Join(p.log(), "\n"))
				_ = p.cmd.Process.Kill()
			}
		})
	}
}

// An emptied rule file is refused at the start, by check, and while the service runs.
func TestServeEmptiedRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	cfg := filepath.Join(t.TempDir(), "sluice.yaml")
	write(t, cfg, fmt.Sprintf("rules: {paths: [%q]}\n", file))
	for _, text := range []string{"", "# none\n", "null\n", "domain: d\n"} {
		write(t, file, text)
		if code, out, _ := sluiceRun(t, "check", file); code != exitFindings || !strings.Contains(out, "[]") {
			t.Errorf("%q: check ends with %d:\n%s", text, code, out)
		}
		if code, _, stderr := sluiceRun(t, "serve", "--config", cfg); code != exitWrong || !strings.Contains(stderr, "[]") {
			t.Errorf("%q: serve ends with %d:\n%s", text, code, stderr)
		}
	}
	write(t, file, "rules: [{name: a, limit: 1/s}]\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", file))
	write(t, file, "")
	p.signal(t, syscall.SIGHUP)
	p.await(t, "the file is empty")
	write(t, file, "rules: [{name: a, per: [ipp], limit: 1/s, overrides: {x: 5/s}}]\n") // which ended the process
	p.signal(t, syscall.SIGHUP)
	p.await(t, "ipp")
	write(t, file, "rules: []\n")
	p.await(t, "rules changed")
}

// check reads a stream once, and finds what is wrong with it.
func TestCheckStreams(t *testing.T) {
	for text, want := range map[string]int{
		"rules: [{name: a, limit: 1/s}]\n": exitFine, "rules: [{name: a, limit: plenty}]\n": exitFindings, "": exitFindings,
		"listeners: {http: {adress: off}}\n": exitFindings, "keys: [{user: ada}]\n": exitFindings,
	} {
		c := program("check", "--warnings=ok", "/dev/stdin")
		c.Stdin = strings.NewReader(text)
		if code, out := ends(t, c); code != want {
			t.Errorf("%q: exit %d, want %d:\n%s", text, code, want, out)
		}
	}
}

// Commands that read a stream which stays silent obey SIGINT.
func TestCommandsInterrupted(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, "rules: [{name: a, limit: 1/s}]\n")
	for _, args := range [][]string{
		{"check", "FIFO"},
		{"fmt", "FIFO"},
		{"fmt"},
		{"limits", "FIFO"},
		{"explain", "--rules", "FIFO", "GET /"},
		{"simulate", "--rules", "FIFO", "log"},
		{"simulate", "--rules", rules, "FIFO"},
		{"simulate", "--rules", rules, "-"},
		{"apikey", "hash"},
		{"password", "--user", "ada"},
		{"status", "--token-file", "FIFO"},
		{"bench", "--body", "@FIFO", "http://127.0.0.1:1/"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			pipe := fifo(t)
			for i, a := range args {
				args[i] = strings.ReplaceAll(a, "FIFO", pipe)
			}
			c := program(args...)
			silent, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() { _ = c.Wait(); close(done) }()
			if strings.Contains(strings.Join(args, " "), pipe) { // it can be opened when the command reads it
				if w, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil {
					defer w.Close()
				}
			}
			// Of standard input nothing tells that it is read by now: the command is told to end until it does.
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for began := time.Now(); ; {
				select {
				case <-done:
					if !c.ProcessState.Exited() && strings.Contains(strings.Join(args, " "), pipe) {
						t.Errorf("it was killed: %v", c.ProcessState)
					}
					return
				case <-tick.C:
					_ = c.Process.Signal(os.Interrupt)
				}
				if time.Since(began) > hangs {
					_ = c.Process.Kill()
					t.Fatal("it does not end")
				}
			}
		})
	}
}

// Entries that are added at the same time are all there afterwards.
func TestAPIKeysAtOnce(t *testing.T) {
	for name, add := range map[string]func(file string, i int) *exec.Cmd{
		"apikey new": func(file string, i int) *exec.Cmd {
			return program("apikey", "new", "--user", fmt.Sprint("u", i), "--file", file)
		},
		"password": func(file string, i int) *exec.Cmd {
			c := program("password", "--cost", "10", "--user", fmt.Sprint("u", i), "--file", file)
			c.Stdin = strings.NewReader("correct horse battery staple\n")
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "accounts.yaml")
			const all = 16
			var group sync.WaitGroup
			for i := range all {
				group.Go(func() {
					if code, out := ends(t, add(file, i)); code != exitFine {
						t.Errorf("exit %d: %s", code, out)
					}
				})
			}
			group.Wait()
			text := read(t, file)
			if n := strings.Count(text, "user: "); n != all {
				t.Errorf("%d of %d entries are there", n, all)
			}
			if err := authn.Check(file, []byte(text)); err != nil {
				t.Error(err)
			}
		})
	}
}
