package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
)

// memoryDir returns a directory in memory, if the system has one. This only saves time: killing a process does not lose written
// files.
func memoryDir(t *testing.T) string {
	t.Helper()
	if directory, err := os.MkdirTemp("/dev/shm", "sluice-gateway"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(directory) })
		return directory
	}
	return t.TempDir()
}

// killed waits until a killed process has exited.
func (p *process) killed(t *testing.T) {
	t.Helper()
	<-p.ended
	var end *exec.ExitError
	if !errors.As(p.err, &end) || end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("sluice serve exited without SIGKILL: %v\n%s", p.err, strings.Join(p.log(), "\n"))
	}
	p.err = nil
}

// arrival is a request that the upstream received.
type arrival struct {
	key, attempt, body string
	status             int // of the response
}

// witness is an upstream that records all requests.
type witness struct {
	*httptest.Server
	step func(kept bool) // is called for each request, before its response

	mu    sync.Mutex // guards the following
	came  map[string][]arrival
	order []string // targets in the order of their first arrival
	at    []time.Time
}

// newWitness starts an upstream whose status depends on the path and the attempt.
func newWitness(t *testing.T, answer func(path, attempt string) int, step func(kept bool)) *witness {
	t.Helper()
	w := &witness{step: step, came: map[string][]arrival{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		a := arrival{r.Header.Get(queue.IdempotencyHeader), r.Header.Get(queue.AttemptHeader), string(body), 0}
		a.status = answer(r.URL.Path, a.attempt)
		w.mu.Lock()
		if w.came[r.URL.Path] == nil {
			w.order = append(w.order, r.URL.Path)
		}
		w.came[r.URL.Path] = append(w.came[r.URL.Path], a)
		w.at = append(w.at, time.Now())
		w.mu.Unlock()
		w.step(a.attempt != "")
		to.WriteHeader(a.status)
	}))
	t.Cleanup(w.Close)
	return w
}

// heardBack is a request of a client and its response; a status of 0 means that there was no response.
type heardBack struct {
	body, own  string
	status     int
	id         string // of a 202
	at         string // its status URL
	retryAfter string
}

// poster is a client that waits for each response.
type poster struct {
	kind, name string
	own        bool // the client sends its own idempotency keys
	sent       int
}

// post sends a client's next request.
func (c *poster) post(t *testing.T, client *http.Client, address string) (target string, got heardBack) {
	t.Helper()
	c.sent++
	target = fmt.Sprintf("/%s/%s/%04d", c.kind, c.name, c.sent)
	got.body = fmt.Sprintf("%s %x %s", target, rand.Uint64(), strings.Repeat("x", rand.IntN(2000)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+target, strings.NewReader(got.body))
	if err != nil {
		t.Error(err)
		return target, got
	}
	req.GetBody = nil // because the client would otherwise resend the request
	req.Header.Set("X-Client", c.name)
	if c.own {
		got.own = "own" + target
		req.Header.Set(queue.IdempotencyHeader, got.own)
	}
	resp, err := client.Do(req)
	if err != nil {
		return target, got
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return target, got
	}
	got.retryAfter = resp.Header.Get("Retry-After")
	if got.status = resp.StatusCode; got.status == http.StatusAccepted {
		var in struct{ ID string }
		if err := json.Unmarshal(b, &in); err != nil || in.ID == "" {
			t.Errorf("%s: 202 with %s, %v", target, b, err)
		}
		got.id, got.at = in.ID, resp.Header.Get("Location")
	}
	return target, got
}

// fetch returns the body at a URL.
func fetch(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
