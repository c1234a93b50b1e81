//go:build unix

package main

import (
	"bytes"
	"errors"
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

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// program returns a command that runs the program with arguments.
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

// ends runs a command and returns its exit code and output. A command that hangs fails the test.
func ends(t *testing.T, c *exec.Cmd) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(hangs, func() { _ = c.Process.Kill() })
	_ = c.Wait() // the exit code is in ProcessState
	if !stuck.Stop() {
		t.Errorf("%v hangs:\n%s", c.Args[1:], out.String())
	}
	return c.ProcessState.ExitCode(), out.String()
}

// A FIFO without a writer in place of any configured file is an error at the start, which names the cause.
func TestServeRefusesFIFOs(t *testing.T) {
	const tls = "listeners: {http: {address: '127.0.0.1:0', tls: {cert_file: %[1]q, key_file: %[1]q}}, grpc: {address: off}, admin: {address: off}}\n"
	const gateway = "listeners: {gateway: {address: '127.0.0.1:0'}, http: {address: off}, grpc: {address: off}, admin: {address: off}}\n" +
		"gateway: {upstreams: {u: {servers: ['https://127.0.0.1:1']%[2]s}}, routes: [{upstream: u}]}\n"
	for name, cfg := range map[string]string{
		"rules":      "rules: {paths: [%q]}\n",
		"snapshot":   "store: {snapshot_file: %q}\n",
		"password":   "store: {kind: redis, url: 'redis://127.0.0.1:1', password_file: %q}\n",
		"store CA":   "store: {kind: redis, url: 'rediss://127.0.0.1:1', tls: {ca_file: %q}}\n",
		"store cert": "store: {kind: redis, url: 'rediss://127.0.0.1:1', tls: {cert_file: %[1]q, key_file: %[1]q}}\n",
		"token":      "admin: {token_file: %q}\n",
		"cert":       tls,
		"client CA":  "listeners: {http: {address: '127.0.0.1:0', tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: %q}}, grpc: {address: off}, admin: {address: off}}\n",
		"check":      "check_api: {reservation_secret_file: %q}\n",
		"logging":    "logging: {denials: sampled, secret_file: %q}\n",
		"tracing":    "tracing: {endpoint: 'http://127.0.0.1:1', headers_file: %q}\n",
		"resp":       "resp: {password_file: %q}\nlisteners: {resp: {address: '127.0.0.1:0'}, http: {address: off}, grpc: {address: off}, admin: {address: off}}\n",
		"API keys":   gateway + "authentication: {api_keys: {files: [%[1]q]}}\n",
		"users":      gateway + "authentication: {basic: {files: [%[1]q]}}\n",
		"secret":     gateway + "authentication: {jwt: {secret_file: %[1]q, algorithms: [HS256]}}\n",
		"JWKS":       gateway + "authentication: {jwt: {jwks_file: %[1]q, algorithms: [RS256]}}\n",
		"queue key":  gateway + "queue: {directory: queue, encryption_key_file: %[1]q}\n",
		"upstream":   strings.Replace(gateway, "%[2]s", ", tls: {ca_file: %[1]q}", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := fifo(t)
			file := filepath.Join(t.TempDir(), "sluice.yaml")
			write(t, file, strings.ReplaceAll(fmt.Sprintf(strings.ReplaceAll(cfg, "%[2]s", ""), pipe), "%!(EXTRA string="+pipe+")", ""))
			code, out := ends(t, program("serve", "--config", file))
			if code != term.ExitWrong || !strings.Contains(out, "is a FIFO") {
				t.Errorf("exit %d:\n%s", code, out)
			}
			if code, out, _ := sluiceRun(t, "check", file); code == term.ExitFine || !strings.Contains(out, "is a FIFO") {
				t.Errorf("sluice check: exit %d:\n%s", code, out)
			}
		})
	}
	t.Run("configuration", func(t *testing.T) {
		t.Parallel()
		if code, out := ends(t, program("serve", "--config", fifo(t))); code != term.ExitWrong || !strings.Contains(out, "is a FIFO") || strings.Contains(out, "run: sluice check") {
			t.Errorf("exit %d:\n%s", code, out)
		}
	})
}

// sluice check reports exactly the configurations with which sluice serve does not start on this host, and creates no files.
func TestCheckAgreesWithServe(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("file"), "no certificate, no snapshot")
	ca := certtest.New(t)
	one, other := ca.Issue(t, "localhost"), ca.Issue(t, "localhost")
	write(t, at("cert.pem"), string(one.Cert))
	write(t, at("key.pem"), string(one.Key))
	write(t, at("other.pem"), string(other.Key))
	if err := errors.Join(os.Mkdir(at("open"), 0o755), os.Symlink("nothing", at("dangling"))); err != nil {
		t.Fatal(err)
	}
	write(t, at("encrypted.pem"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
	write(t, at("other.key"), strings.Repeat("ab", queue.KeySize))
	for _, name := range []string{"encrypted", "sealed"} { // one each, because a queue has one process at a time
		q, err := queue.Open(queue.Config{Directory: at(name), EncryptionKey: make([]byte, queue.KeySize)})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const on = "listeners: {http: {address: '127.0.0.1:0'}, grpc: {address: off}, admin: {address: off}}\n"
	const gateway = "listeners: {gateway: {address: '127.0.0.1:0'%s}, http: {address: '127.0.0.1:0'}, grpc: {address: off}, admin: {address: off}}\n" +
		"gateway: {upstreams: {u: {servers: ['https://127.0.0.1:1']}}, routes: [{upstream: u}]%s}\n"
	log := func(path string) string { return fmt.Sprintf(gateway, "", ", access_log: {file: '"+path+"'}") }
	plain := fmt.Sprintf(gateway, "", "")
	secure := func(cert, key string) string {
		return fmt.Sprintf("listeners: {http: {address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q}}, grpc: {address: off}, admin: {address: off}}\n", at(cert), at(key))
	}
	for name, c := range map[string]struct{ cfg, refused string }{
		"no access log":              {log("/dev/null"), ""},
		"new access log":             {log(at("new.log")), ""},
		"access log in no directory": {log(at("missing/access.log")), "gateway.access_log.file: " + at("missing/access.log") + ": cannot be written: there is no directory " + at("missing")},
		"access log in a file":       {log(at("file/access.log")), "access.log: cannot be written: a directory of the path is a file"},
		"access log a directory":     {log(at("open")), "is neither a regular file nor a FIFO"},
		"new queue":                  {plain + "queue: {directory: '" + at("a/new/queue") + "'}\n", ""},
		"queue in a file":            {plain + "queue: {directory: '" + at("file") + "'}\n", "queue.directory: " + at("file")},
		"queue below a file":         {plain + "queue: {directory: '" + at("file/queue") + "'}\n", "queue.directory: " + at("file")},
		"queue without CA":           {plain + "queue: {url: 'tls://127.0.0.1:1', tls: {ca_file: '" + at("file") + "'}}\n", "queue.tls.ca_file: " + at("file") + ": no certificate found"},
		"queue without credentials":  {plain + "queue: {url: 'nats://127.0.0.1:1', credentials_file: '" + at("missing") + "'}\n", "queue.credentials_file: " + at("missing") + ": there is no such file or directory"},
		"certificate":                {secure("cert.pem", "key.pem"), ""},
		"no certificate":             {secure("missing", "key.pem"), "listeners.http.tls.cert_file: " + at("missing") + ": there is no such file or directory"},
		"no PEM":                     {secure("file", "key.pem"), "listeners.http.tls.cert_file: " + at("file") + ": no certificate found"},
		"no key":                     {secure("cert.pem", "file"), "listeners.http.tls.key_file: " + at("file") + ": no private key found"},
		"encrypted key":              {secure("cert.pem", "encrypted.pem"), "listeners.http.tls.key_file: " + at("encrypted.pem") + " is encrypted: write it without a passphrase"},
		"key of another":             {secure("cert.pem", "other.pem"), "listeners.http.tls.key_file: " + at("other.pem") + " does not belong to the certificate " + at("cert.pem")},
		"socket":                     {"listeners: {http: {address: 'unix://" + at("s.sock") + "'}, grpc: {address: off}, admin: {address: off}}\n", ""},
		"socket in no directory":     {"listeners: {http: {address: 'unix://" + at("missing/s") + "'}, grpc: {address: off}, admin: {address: off}}\n", "listeners.http.address: " + at("missing/s") + ": cannot be written: there is no directory " + at("missing")},
		"socket in place of a file":  {"listeners: {http: {address: 'unix://" + at("file") + "'}, grpc: {address: off}, admin: {address: off}}\n", "listeners.http.address: " + at("file") + ": a file of that name exists: remove it"},
		"ACME keys that others read": {fmt.Sprintf(gateway, ", acme: {domains: example.com, cache_dir: '"+at("open")+"'}", ""), "listeners.gateway.acme.cache_dir: other users"},
		"snapshot that is none":      {on + "store: {snapshot_file: '" + at("file") + "'}\n", "store.snapshot_file: " + at("file")},
		"snapshot in no directory":   {on + "store: {snapshot_file: '" + at("missing/snapshot") + "'}\n", "store.snapshot_file: " + at("missing/snapshot") + ": cannot be written: there is no directory " + at("missing") + ": use a directory"},
		"snapshot in a file":         {on + "store: {snapshot_file: '" + at("file/snapshot") + "'}\n", "snapshot: cannot be written: a directory of the path is a file: "},
		"snapshot a directory":       {on + "store: {snapshot_file: '" + at("open") + "'}\n", "is a directory: name a regular file"},
		"new snapshot":               {on + "store: {snapshot_file: '" + at("new.snapshot") + "'}\n", ""},
		"no password":                {on + "store: {kind: redis, url: 'redis://127.0.0.1:1', password_file: '" + at("missing") + "'}\n", "store.password_file: " + at("missing") + ": there is no such file or directory"},
		"long socket":                {"listeners: {http: {address: 'unix:///tmp/" + strings.Repeat("s", 103) + "'}, grpc: {address: off}, admin: {address: off}}\n", "choose a shorter one"},
		"one address for two":        {"listeners: {http: {address: '127.0.0.1:19999'}, grpc: {address: off}, admin: {address: '127.0.0.1:19999'}}\n", "the HTTP listener of this configuration uses"},
		"all addresses and one":      {"listeners: {http: {address: ':19998'}, grpc: {address: off}, admin: {address: '127.0.0.1:19998'}}\n", "the HTTP listener of this configuration uses"},
		"one socket for two":         {"listeners: {http: {address: 'unix://" + at("two.sock") + "'}, grpc: {address: off}, admin: {address: 'unix://" + at("two.sock") + "'}}\n", "the HTTP listener of this configuration uses"},
		"queue in a link to nothing": {plain + "queue: {directory: '" + at("dangling") + "'}\n", "is a symbolic link to nothing, which does not exist"},
		"queue below a link":         {plain + "queue: {directory: '" + at("dangling/queue") + "'}\n", "is a symbolic link to nothing, which does not exist"},
		"queue without key":          {plain + "queue: {directory: '" + at("encrypted") + "'}\n", "sluice-items is encrypted: set the file"},
		"queue with another key":     {plain + "queue: {directory: '" + at("sealed") + "', encryption_key_file: '" + at("other.key") + "'}\n", "was written with another key"},
		"two files of a certificate": {secure("missing", "absent"), "tls.key_file: " + at("absent") + ": there is no such file or directory"},
		"no token":                   {strings.Replace(on, "admin: {address: off}", "admin: {address: '127.0.0.1:0'}", 1) + "admin: {token_file: '" + at("missing") + "'}\n", "admin.token_file: " + at("missing") + ": there is no such file or directory"},
		"no headers":                 {on + "tracing: {endpoint: 'http://127.0.0.1:1', headers_file: '" + at("missing") + "'}\n", "tracing.headers_file: " + at("missing") + ": there is no such file or directory"},
		"no upstream CA":             {strings.Replace(plain, "127.0.0.1:1']", "127.0.0.1:1'], tls: {ca_file: '"+at("missing")+"'}", 1), "gateway.upstreams.u.tls.ca_file: " + at("missing") + ": there is no such file or directory"},
		"no refund token":            {on + "check_api: {refund_token_file: '" + at("missing") + "'}\n", "check_api.refund_token_file: " + at("missing") + ": there is no such file or directory"},
		"one Memcached twice":        {on + "store: {kind: memcached, addresses: ['a:1', 'a:1']}\n", "store.addresses: \"a:1\" is listed twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "sluice.yaml")
			write(t, file, c.cfg)
			code, out, _ := sluiceRun(t, "check", file)
			if c.refused == "" {
				if code != term.ExitFine {
					t.Errorf("sluice check: exit %d\n%s", code, out)
				}
				for _, created := range []string{"a", "new.log", "s.sock"} {
					if _, err := os.Stat(at(created)); err == nil && strings.Contains(c.cfg, at(created)) {
						t.Errorf("sluice check has created %s", created)
					}
				}
				p := launch(t, c.cfg)
				p.await(t, "msg=serving")
				return
			}
			if code != term.ExitFindings || !strings.Contains(out, "serve would not start on this host: ") || !strings.Contains(out, c.refused) || strings.Contains(out, "\ufffd") {
				t.Errorf("sluice check: exit %d, want %q\n%s", code, c.refused, out)
			}
			if code, out := ends(t, program("serve", "--config", file)); code == term.ExitFine || !strings.Contains(out, c.refused) {
				t.Errorf("sluice serve: exit %d, want %q\n%s", code, c.refused, out)
			}
		})
	}
}

// sluice check warns of a certificate that is expired or not yet valid, and sluice serve logs it at the start and on reload.
func TestServeCertificateNotValid(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca := certtest.New(t)
	install := func(p certtest.Pair) {
		write(t, cert, string(p.Cert))
		write(t, key, string(p.Key))
	}
	config := fmt.Sprintf("listeners: {http: {address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q}}, grpc: {address: off}, admin: {address: off}}\n", cert, key)
	file := filepath.Join(dir, "sluice.yaml")
	write(t, file, config)
	const expired, future = "the certificate expired at ", "the certificate is valid from "
	install(ca.IssueAt(t, time.Now().Add(-2*time.Hour), "localhost"))
	p := launch(t, config)
	p.await(t, expired)
	if code, out, _ := sluiceRun(t, "check", file); code != term.ExitFindings || !strings.Contains(out, "warning: "+cert+": "+expired) || strings.Contains(out, "would not start") {
		t.Errorf("sluice check: exit %d\n%s", code, out)
	}
	install(ca.IssueAt(t, time.Now().Add(time.Hour), "localhost"))
	p.signal(t, syscall.SIGHUP)
	p.await(t, future)
	if code, out, _ := sluiceRun(t, "check", file); code != term.ExitFindings || !strings.Contains(out, "warning: "+cert+": "+future) {
		t.Errorf("sluice check: exit %d\n%s", code, out)
	}
}

// If files are replaced by FIFOs or directories, or removed, while the service runs, it keeps the content read before, and still
// shuts down on SIGTERM.
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
			p.await(t, "rules reload failed")
			p.signal(t, syscall.SIGTERM)
			select {
			case <-p.ended:
			case <-time.After(hangs):
				t.Errorf("the service does not exit:\n%s", strings.Join(p.log(), "\n"))
				_ = p.cmd.Process.Kill()
			}
		})
	}
}

// An empty rule file is an error at the start, in sluice check, and while the service runs.
func TestServeEmptiedRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	cfg := filepath.Join(t.TempDir(), "sluice.yaml")
	write(t, cfg, fmt.Sprintf("rules: {paths: [%q]}\n", file))
	for _, text := range []string{"", "# none\n", "null\n", "domain: d\n"} {
		write(t, file, text)
		if code, out, _ := sluiceRun(t, "check", file); code != term.ExitFindings || !strings.Contains(out, "[]") {
			t.Errorf("%q: exit code %d of check:\n%s", text, code, out)
		}
		if code, _, stderr := sluiceRun(t, "serve", "--config", cfg); code != term.ExitWrong || !strings.Contains(stderr, "[]") {
			t.Errorf("%q: exit code %d of serve:\n%s", text, code, stderr)
		}
	}
	write(t, file, "rules: [{name: a, limit: 1/s}]\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", file))
	write(t, file, "")
	p.signal(t, syscall.SIGHUP)
	p.await(t, "the file is empty")
	write(t, file, "rules: [{name: a, per: [ipp], limit: 1/s, overrides: {x: 5/s}}]\n") // this once crashed the process
	p.signal(t, syscall.SIGHUP)
	p.await(t, "ipp")
	write(t, file, "rules: []\n")
	p.await(t, "rules reloaded")
}

// check reads a stream once and reports its errors.
func TestCheckStreams(t *testing.T) {
	for text, want := range map[string]int{
		"rules: [{name: a, limit: 1/s}]\n": term.ExitFine, "rules: [{name: a, limit: plenty}]\n": term.ExitFindings, "": term.ExitFindings,
		"listeners: {http: {adress: off}}\n": term.ExitFindings, "keys: [{user: ada}]\n": term.ExitFindings,
	} {
		c := program("check", "--warnings=show", "/dev/stdin")
		c.Stdin = strings.NewReader(text)
		if code, out := ends(t, c); code != want {
			t.Errorf("%q: exit %d, want %d:\n%s", text, code, want, out)
		}
	}
}

// Commands that wait for input from a stream exit on SIGINT.
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
			if strings.Contains(strings.Join(args, " "), pipe) { // opening for writing succeeds once the command reads
				if w, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil {
					defer w.Close()
				}
			}
			// Whether standard input is being read cannot be observed, so send SIGINT until the command exits.
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for began := time.Now(); ; {
				select {
				case <-done:
					if !c.ProcessState.Exited() && strings.Contains(strings.Join(args, " "), pipe) {
						t.Errorf("the command was killed: %v", c.ProcessState)
					}
					return
				case <-tick.C:
					_ = c.Process.Signal(os.Interrupt)
				}
				if time.Since(began) > hangs {
					_ = c.Process.Kill()
					t.Fatal("the command does not exit")
				}
			}
		})
	}
}

// Entries that commands add to a file concurrently are all kept.
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
			const all = 8
			var group sync.WaitGroup
			for i := range all {
				group.Go(func() {
					if code, out := ends(t, add(file, i)); code != term.ExitFine {
						t.Errorf("exit %d: %s", code, out)
					}
				})
			}
			group.Wait()
			text := read(t, file)
			if n := strings.Count(text, "user: "); n != all {
				t.Errorf("the file has %d of %d entries", n, all)
			}
			if err := authn.Check(file, []byte(text)); err != nil {
				t.Error(err)
			}
		})
	}
}
