package queue

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
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
)

// childDirectory and childUpstream are environment variables that make the test binary run a gateway.
const (
	childDirectory = "SLUICE_QUEUE_CHILD_DIRECTORY"
	childUpstream  = "SLUICE_QUEUE_CHILD_UPSTREAM"
	childRound     = "SLUICE_QUEUE_CHILD_ROUND"
)

func TestMain(m *testing.M) {
	if directory := os.Getenv(childDirectory); directory != "" {
		if err := child(directory, os.Getenv(childUpstream), os.Getenv(childRound)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// perRound is the maximum number of accepted requests per producer of a child before it is killed.
const perRound = 15

// send is a worker that sends to a real upstream.
func send(upstream string) func(context.Context, *Item, func() error) Outcome {
	return func(ctx context.Context, it *Item, begin func() error) Outcome {
		if err := begin(); err != nil {
			return Outcome{}
		}
		r, err := http.NewRequestWithContext(ctx, it.Method, upstream+it.Target, bytes.NewReader(it.Body))
		if err != nil {
			return Outcome{Err: err}
		}
		r.Header = it.Header
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return Outcome{Err: err}
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		return Outcome{Status: answer.StatusCode, Header: answer.Header, Body: b, Err: err}
	}
}

func killConfig(directory string) Config {
	return Config{Directory: directory, Delivers: true, MinBackoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond}
}

// child runs a gateway that accepts requests until it is killed. It prints each one after Put has returned.
func child(directory, upstream, round string) error {
	cfg := killConfig(directory)
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	q, err := Open(cfg)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	all.Go(func() { runWorkers(context.Background(), q, send(upstream)) })
	var out sync.Mutex
	for producer, kind := range []string{"ok", "ordered", "dead", "own", "cancel", "ordered", "large"} {
		all.Go(func() {
			for n := range perRound {
				it := Item{Rule: kind, Key: fmt.Sprint(producer), Method: "POST", Target: fmt.Sprintf("/%s/%d/%s/%04d", kind, producer, round, n), Attempts: 3}
				switch kind {
				case "ordered":
					it.Ordered = true
				case "own":
					it.IdempotencyKey = "own" + it.Target
				case "large":
					it.Body = bytes.Repeat([]byte("x"), rand.IntN(200<<10))
				}
				id, err := q.Put(context.Background(), it)
				if err != nil {
					fmt.Fprintln(os.Stderr, "Put:", err)
					continue
				}
				what := "accepted"
				if kind == "cancel" {
					if _, err := q.Cancel(context.Background(), id); err == nil {
						what = "cancelled"
					}
				}
				out.Lock()
				fmt.Println(what, it.Target, id)
				out.Unlock()
			}
		})
	}
	all.Wait()
	return nil
}

// witness is an upstream that records all deliveries.
type witness struct {
	mu    sync.Mutex
	keys  map[string][]string // idempotency keys by target, one per delivery
	order map[string][]string // targets by producer, in the order of their first delivery
}

func (w *witness) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	target := r.URL.Path
	parts := strings.Split(target, "/")
	w.mu.Lock()
	if w.keys[target] == nil {
		producer := parts[1] + parts[2]
		w.order[producer] = append(w.order[producer], target)
	}
	w.keys[target] = append(w.keys[target], r.Header.Get(IdempotencyHeader))
	w.mu.Unlock()
	h := fnv.New32()
	_, _ = h.Write([]byte(target))
	switch {
	case parts[1] == "dead":
		to.WriteHeader(http.StatusInternalServerError)
	case parts[1] == "cancel": // delivered again unless it is cancelled before
	case h.Sum32()%5 == 0 && r.Header.Get(AttemptHeader) == "1":
		to.WriteHeader(http.StatusServiceUnavailable)
	}
}

// A gateway that is killed at any time loses no accepted item.
func TestKilled(t *testing.T) {
	t.Parallel()
	rounds := 10
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds = 200
	}
	w := &witness{keys: map[string][]string{}, order: map[string][]string{}}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	directory := quick(t)
	accepted, cancelled := map[string]string{}, map[string]string{} // IDs by target
	for round := range rounds {
		killRound(t, directory, server.URL, round, accepted, cancelled)
	}
	q, _ := run(t, killConfig(directory), send(server.URL))
	eventually(t, "settled", func() bool { c := q.Counts(t.Context()); return c.Up && c.Queued+c.Delivering == 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check(t, accepted, cancelled)
	checkDead(t, q, accepted)
	if lost := q.Counts(t.Context()).Lost; lost != 0 {
		t.Errorf("%d items are counted as lost", lost)
	}
	total := 0
	for _, keys := range w.keys {
		total += len(keys)
	}
	t.Logf("killed %d times: %d accepted, %d cancelled, %d delivered, %d of them again", rounds, len(accepted), len(cancelled), total, total-len(w.keys))
	if len(accepted) < 10*rounds {
		t.Errorf("only %d were accepted: too few for this test", len(accepted))
	}
}

// killRound starts a gateway and kills it after some accepted items.
func killRound(t *testing.T, directory, upstream string, round int, accepted, cancelled map[string]string) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childDirectory+"="+directory, childUpstream+"="+upstream, childRound+"="+fmt.Sprintf("%04d", round))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	after, n := 1+rand.IntN(6*perRound), 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var what, target, id string
		if k, _ := fmt.Sscan(lines.Text(), &what, &target, &id); k != 3 {
			continue
		}
		if what == "cancelled" {
			cancelled[target] = id
		} else {
			accepted[target] = id
		}
		if n++; n == after { // at any point; the rest of the pipe is still read
			_ = c.Process.Signal(syscall.SIGKILL)
		}
	}
	var ended *exec.ExitError
	if err := c.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("round %d: the gateway exited: %v\n%s", round, err, &stderr)
	}
	for _, alarm := range []string{"queue items lost", "without a ledger record", "ledger write failed", "corrupt"} {
		if strings.Contains(stderr.String(), alarm) {
			t.Errorf("round %d: no block was removed, and the log is\n%s", round, &stderr)
		}
	}
}

// check compares the accepted with the delivered items.
func (w *witness) check(t *testing.T, accepted, cancelled map[string]string) {
	t.Helper()
	for target, id := range accepted {
		want := id
		if strings.HasPrefix(target, "/own/") {
			want = "own" + target
		}
		keys := w.keys[target]
		if len(keys) == 0 {
			t.Errorf("%s was accepted and lost", target)
		}
		for _, key := range keys {
			if key != want {
				t.Errorf("%s was delivered with the idempotency key %q, want %q", target, key, want)
			}
		}
	}
	for target, keys := range w.keys { // also of items that were stored before Put returned
		for _, key := range keys {
			if key != keys[0] {
				t.Errorf("%s was delivered with the keys %q and %q", target, keys[0], key)
			}
		}
	}
	for target := range cancelled {
		if len(w.keys[target]) > 0 {
			t.Errorf("%s was cancelled and delivered", target)
		}
	}
	for producer, order := range w.order {
		last := ""
		for _, target := range order {
			if at := position(target); strings.HasPrefix(producer, "ordered") && at <= last {
				t.Errorf("%s was delivered after %s", target, last)
			} else {
				last = at
			}
		}
	}
}

// position returns the position of a target in the order of its producer.
func position(target string) string {
	return strings.Join(strings.Split(target, "/")[3:], "/")
}

// checkDead checks that the dead letters are exactly the items that fail permanently.
func checkDead(t *testing.T, q *Queue, accepted map[string]string) {
	t.Helper()
	dead := map[string]bool{}
	for after := ""; ; {
		page, next, err := q.List(t.Context(), Dead, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range page {
			dead[st.ID] = true
			if st.Rule != "dead" || st.Error == "" {
				t.Errorf("unexpected dead letter %+v", st)
			}
		}
		if after = next; next == "" {
			break
		}
	}
	for target, id := range accepted {
		if fails := strings.HasPrefix(target, "/dead/"); fails != dead[id] {
			t.Errorf("%s is a dead letter: %v", target, dead[id])
		}
	}
}
