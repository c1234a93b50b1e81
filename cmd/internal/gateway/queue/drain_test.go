package queue

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Shutdown waits for a delivery in flight, which is not repeated.
func TestDrain(t *testing.T) {
	t.Parallel()
	directory, up := quick(t), newUpstream()
	inside, leave := make(chan struct{}), make(chan struct{})
	up.answer("/long", func(*Item) Outcome {
		close(inside)
		<-leave
		return Outcome{Status: 200}
	})
	q, stop := run(t, Config{Directory: directory}, up.deliver)
	id, waits := put(t, q, Item{Rule: "r", Key: "k", Ordered: true, Target: "/long"}), put(t, q, Item{Rule: "r", Key: "k", Ordered: true, Target: "/next"})
	<-inside
	ended := make(chan struct{})
	go func() {
		stop()
		close(ended)
	}()
	eventually(t, "ending", q.ending.Load)
	close(leave)
	<-ended
	if n := len(up.deliveries()); n != 1 {
		t.Errorf("%d deliveries", n)
	}
	q, _ = run(t, Config{Directory: directory}, up.deliver)
	if st, err := q.Get(t.Context(), id); err != nil || st.State != Done {
		t.Errorf("%+v, %v", st, err)
	}
	eventually(t, "done", isState(t, q, waits, Done))
	if n := len(up.deliveries()); n != 2 {
		t.Errorf("%d deliveries", n)
	}
}

// A delivery that exceeds the drain timeout is cancelled and repeated by the next process, regardless of its attempts.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	directory, up, inside := quick(t), newUpstream(), make(chan struct{})
	q, stop := run(t, Config{Directory: directory, Drain: time.Millisecond}, func(ctx context.Context, _ *Item, begin func() error) Outcome {
		if begin() == nil {
			close(inside)
			<-ctx.Done()
		}
		return Outcome{Err: ctx.Err()}
	})
	id := put(t, q, Item{Rule: "r", Target: "/x", Attempts: 1})
	<-inside
	stop()
	q, _ = run(t, Config{Directory: directory}, up.deliver)
	eventually(t, "done", isState(t, q, id, Done))
	if got := up.deliveries(); len(got) != 1 || got[0].attempt != "2" {
		t.Errorf("deliveries: %+v", got)
	}
}

func TestDeadLetterTTL(t *testing.T) {
	t.Parallel()
	up := newUpstream()
	up.answer("/x", always(500))
	q, _ := run(t, Config{DeadLetterTTL: 300 * time.Millisecond}, up.deliver)
	id := put(t, q, Item{Rule: "r", Target: "/x", Attempts: 1})
	eventually(t, "dropped", isState(t, q, id, Cancelled))
	if n := len(up.deliveries()); n != 1 {
		t.Errorf("%d deliveries", n)
	}
	leaves(t, q, 0)
}

// The stored part of responses is bounded, and so is the Retry-After of an upstream.
func TestBounds(t *testing.T) {
	t.Parallel()
	up := newUpstream()
	up.answer("/x", func(*Item) Outcome {
		return Outcome{Status: 200, Header: http.Header{"A": {strings.Repeat("a", 20<<10)}, "B": {"b"}}, Body: make([]byte, MaxResult+1)}
	})
	q, _ := run(t, Config{}, up.deliver)
	id := put(t, q, Item{Rule: "r", Target: "/x"})
	var st *Status
	eventually(t, "done", func() bool {
		got, err := q.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		st = got
		return st.State == Done
	})
	if r := st.Result; len(r.Body) != MaxResult || !r.Truncated || r.Header.Get("A") != "" {
		t.Errorf("%d bytes are stored, truncated %v, %d of the header", len(r.Body), r.Truncated, len(r.Header.Get("A")))
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "x": 0, "99999999": time.Hour, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Thu, 01 Jan 2026 03:05:05 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("Retry-After: %s is %v, want %v", text, got, want)
		}
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("a queue without directory and URL was opened")
	}
	if _, err := Open(Config{URL: "nats://127.0.0.1:1", CredentialsFile: "/no"}); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("without the credentials file: %v", err)
	}
}

// A long list is returned in pages, each item once.
func TestPages(t *testing.T) {
	t.Parallel()
	q := open(t, Config{})
	defer q.Close()
	want := map[string]bool{}
	for range 7 {
		want[put(t, q, Item{Rule: "r"})] = true
	}
	eventually(t, "indexed", func() bool { return q.Counts(t.Context()).Queued == 7 })
	pages := 0
	for after := ""; ; {
		page, next, err := q.List(t.Context(), Queued, after, 3)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, st := range page {
			if !want[st.ID] {
				t.Errorf("%s is listed twice, or is unknown", st.ID)
			}
			delete(want, st.ID)
		}
		if after = next; next == "" {
			break
		}
	}
	if pages != 3 || len(want) > 0 {
		t.Errorf("%d pages omit %v", pages, want)
	}
}

// HasPending is true from the acceptance of an item of an ordered key until it is done.
func TestHasPending(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	up := newUpstream()
	up.answer("/a", func(*Item) Outcome { <-hold; return Outcome{Status: 200} })
	q, _ := run(t, Config{}, up.deliver)
	if q.HasPending("r", "k") {
		t.Error("pending without any item")
	}
	put(t, q, Item{Rule: "r", Key: "k", Ordered: true, Target: "/a"})
	if !q.HasPending("r", "k") {
		t.Error("an accepted item is not pending")
	}
	put(t, q, Item{Rule: "r", Key: "free", Target: "/a"})
	if q.HasPending("r", "other") || q.HasPending("r", "free") {
		t.Error("another key or rule is pending")
	}
	q.sessionFailed(q.current.Load(), errors.New("the disk is full"))
	if !q.HasPending("r", "k") || q.HasPending("r", "other") {
		t.Error("not pending while the queue is not writable")
	}
	close(hold)
	eventually(t, "done", func() bool { return !q.HasPending("r", "k") })
}
