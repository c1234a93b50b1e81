package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"
)

// upstream is a fake upstream. Responses are configured by target; the default is 200.
type upstream struct {
	mu      sync.Mutex
	answers map[string]func(it *Item) Outcome
	got     []delivery
	changed chan struct{}
}

type delivery struct {
	id, target, key, attempt string
	at                       time.Time
}

func newUpstream() *upstream {
	return &upstream{answers: map[string]func(*Item) Outcome{}, changed: make(chan struct{}, 1)}
}

// deliver is a worker function, see type deliver.
func (u *upstream) deliver(_ context.Context, it *Item, begin func() error) Outcome {
	if begin() != nil {
		return Outcome{}
	}
	u.mu.Lock()
	u.got = append(u.got, delivery{it.ID, it.Target, it.Header.Get(IdempotencyHeader), it.Header.Get(AttemptHeader), time.Now()})
	answer := u.answers[it.Target]
	u.mu.Unlock()
	if answer != nil {
		return answer(it)
	}
	return Outcome{Status: http.StatusOK, Header: http.Header{"X-Echo": {it.Target}}, Body: it.Body}
}

func (u *upstream) answer(target string, a func(*Item) Outcome) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answers[target] = a
}

func (u *upstream) deliveries() []delivery {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]delivery(nil), u.got...)
}

func always(status int) func(*Item) Outcome {
	return func(*Item) Outcome { return Outcome{Status: status} }
}

// quick returns a directory in memory, if there is one. Its data survives the end of a process, so that tests are only faster.
func quick(t *testing.T) string {
	t.Helper()
	if directory, err := os.MkdirTemp("/dev/shm", "sluice-queue"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(directory) })
		return directory
	}
	return t.TempDir()
}

// open opens a queue that is not run.
func open(t *testing.T, cfg Config) *Queue {
	t.Helper()
	if cfg.Directory == "" && cfg.URL == "" {
		cfg.Directory = quick(t)
	}
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff, cfg.MaxBackoff = 10*time.Millisecond, 50*time.Millisecond
	}
	if cfg.sweep == 0 {
		cfg.sweep = 100 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	q, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// deliver is the function that workers of tests call for an item. It must call begin before it sends the item.
type deliver func(ctx context.Context, it *Item, begin func() error) Outcome

// later returns the outcome of an item that the rules deny.
func later(after time.Duration) Outcome { return Outcome{Err: noRoom(after)} }

type noRoom time.Duration

func (noRoom) Error() string { return "there is no room" }

// work delivers items until ctx is done.
func work(ctx context.Context, q *Queue, do deliver) {
	for {
		d, err := q.Next(ctx)
		if err != nil {
			return
		}
		var wait noRoom
		if out := do(d.Context(), d.Item(), d.Begin); errors.As(out.Err, &wait) {
			d.Later(time.Duration(wait))
		} else {
			d.Done(out)
		}
	}
}

// runWorkers runs a queue and, unless do is nil, its workers. It returns when all have ended.
func runWorkers(ctx context.Context, q *Queue, do deliver) {
	var running sync.WaitGroup
	running.Go(func() { _ = q.Run(ctx) })
	for range q.cfg.Workers {
		if do != nil {
			running.Go(func() { work(ctx, q, do) })
		}
	}
	running.Wait()
}

// run opens a queue and runs it until the test ends, or stop is called.
func run(t *testing.T, cfg Config, do deliver) (q *Queue, stop func()) {
	t.Helper()
	cfg.Delivers = do != nil
	q = open(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { runWorkers(ctx, q, do) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return q, stop
}

func put(t *testing.T, q *Queue, it Item) string {
	t.Helper()
	id, err := q.Put(context.Background(), it)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// patience is the timeout of eventually.
const patience = 2 * time.Minute

// eventually waits until so returns true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for tick := time.NewTicker(2 * time.Millisecond); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timeout after %v: %s", patience, what)
		}
	}
}

func isState(t *testing.T, q *Queue, id string, want State) func() bool {
	return func() bool {
		st, err := q.Get(context.Background(), id)
		if err != nil && !errors.Is(err, ErrUnavailable) {
			t.Fatalf("Get: %v", err)
		}
		return err == nil && st.State == want
	}
}

func TestDelivered(t *testing.T) {
	up := newUpstream()
	q, _ := run(t, Config{Directory: t.TempDir()}, up.deliver)
	id := put(t, q, Item{Rule: "r", Key: "k\xff\x00", Method: "POST", Target: "/a?b=c", Body: []byte("hello")})
	own := put(t, q, Item{Rule: "r", Key: "k", Target: "/own", IdempotencyKey: "mine"})
	eventually(t, "done", isState(t, q, id, Done))
	eventually(t, "done", isState(t, q, own, Done))
	st, err := q.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if st.Result == nil || st.Result.Status != 200 || string(st.Result.Body) != "hello" || st.Result.Header.Get("X-Echo") != "/a?b=c" {
		t.Errorf("the result is %+v", st.Result)
	}
	if st.Rule != "r" || st.Key != "k\xff\x00" || st.Attempts != 1 || st.Accepted.IsZero() {
		t.Errorf("the status is %+v", st)
	}
	for _, d := range up.deliveries() {
		if want := map[string]string{id: id, own: "mine"}[d.id]; d.key != want || d.attempt != "1" {
			t.Errorf("%s was delivered with the key %q and attempt %s, want %q", d.target, d.key, d.attempt, want)
		}
	}
	eventually(t, "removed", func() bool {
		c := q.Counts(t.Context())
		return c.Queued+c.Delivering+c.Bytes == 0 && c.Ended == 2 && c.Delivered == 2
	})
	leaves(t, q, 0)
}

// leaves checks that the streams contain only dead dead letters. It reads the streams, because Counts may lag.
func leaves(t *testing.T, q *Queue, dead int) {
	t.Helper()
	eventually(t, "only dead letters are left", func() bool {
		s := q.current.Load()
		if s == nil {
			return false
		}
		items, err := s.items.Info(t.Context())
		states, wrong := s.states.Info(t.Context())
		c := q.Counts(t.Context())
		return err == nil && wrong == nil && items.State.Msgs == uint64(dead) && states.State.Msgs == uint64(dead) &&
			c.Up && c.Queued+c.Delivering == 0 && c.Dead == int64(dead)
	})
}

func TestFailures(t *testing.T) {
	up := newUpstream()
	q, _ := run(t, Config{}, up.deliver)
	for i, c := range []struct {
		out      Outcome
		attempts int
		state    State
	}{
		{Outcome{Status: 500}, 3, Dead},
		{Outcome{Status: 503}, 3, Dead},
		{Outcome{Status: 501}, 1, Done},
		{Outcome{Status: 404}, 1, Done},
		{Outcome{Status: 408}, 3, Dead},
		{Outcome{Status: 425}, 3, Dead},
		{Outcome{Status: 429}, 3, Dead},
		{Outcome{Err: errors.New("refused")}, 3, Dead},
		{Outcome{Status: 200, Retry: true}, 3, Dead},
		{Outcome{Status: 302}, 1, Done},
	} {
		t.Run(fmt.Sprint(c.out.Status, c.out.Err, c.out.Retry), func(t *testing.T) {
			target := fmt.Sprint("/", i)
			up.answer(target, func(*Item) Outcome { return c.out })
			id := put(t, q, Item{Rule: "r", Key: target, Target: target, Attempts: 3})
			eventually(t, c.state.String(), isState(t, q, id, c.state))
			n := 0
			for _, d := range up.deliveries() {
				if d.id == id {
					n++
					if d.attempt != fmt.Sprint(n) || d.key != id {
						t.Errorf("delivery %d has attempt %s and key %s", n, d.attempt, d.key)
					}
				}
			}
			if n != c.attempts {
				t.Errorf("delivered %d times, want %d", n, c.attempts)
			}
		})
	}
}
