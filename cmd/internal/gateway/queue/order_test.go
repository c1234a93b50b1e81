package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// limited admits a configured number of items and counts the checks.
type limited struct {
	mu    sync.Mutex
	next  time.Time
	every time.Duration
	asked int
}

func (l *limited) admit() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	now := time.Now()
	if wait := l.next.Sub(now); wait > 0 {
		return wait
	}
	l.next = now.Add(l.every)
	return 0
}

// The limits of a subqueue with 1000 items are not checked for each of them.
func TestLimited(t *testing.T) {
	t.Parallel()
	up, room := newUpstream(), &limited{every: 100 * time.Millisecond}
	q, _ := run(t, Config{}, func(ctx context.Context, it *Item, begin func() error) Outcome {
		if it.Rule == "free" {
			return up.deliver(ctx, it, begin)
		}
		if wait := room.admit(); wait > 0 {
			return later(wait)
		}
		return up.deliver(ctx, it, begin)
	})
	const n = 300
	for range n {
		put(t, q, Item{Rule: "r", Key: "k", Target: "/slow"})
	}
	other := put(t, q, Item{Rule: "free", Key: "k", Target: "/other"})
	eventually(t, "another subqueue is not blocked", isState(t, q, other, Done))
	eventually(t, "5 delivered", func() bool { return len(up.deliveries()) >= 6 })
	room.mu.Lock()
	defer room.mu.Unlock()
	if came := len(up.deliveries()); room.asked > 3*came+3 {
		t.Errorf("%d delivered, and the limits were checked %d times", came, room.asked)
	}
	if c := q.Counts(t.Context()); c.Denied == 0 || c.Failed != 0 || c.Queued < n/2 {
		t.Errorf("counted: %+v", c)
	}
}

func TestOrdered(t *testing.T) {
	t.Parallel()
	up := newUpstream()
	q, _ := run(t, Config{}, up.deliver)
	var want []string
	for n := range 20 {
		target := fmt.Sprintf("/%03d", n)
		switch n {
		case 3:
			up.answer(target, always(500)) // becomes a dead letter and blocks no other item
		case 7:
			up.answer(target, func(it *Item) Outcome { return Outcome{Status: map[bool]int{true: 503, false: 200}[it.Attempt < 3]} })
		}
		put(t, q, Item{Rule: "r", Key: "k", Ordered: true, Target: target, Attempts: 3})
		want = append(want, target)
	}
	leaves(t, q, 1)
	var got []string
	for _, d := range up.deliveries() {
		if len(got) == 0 || got[len(got)-1] != d.target {
			got = append(got, d.target)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("deliveries: %v", got)
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	q := open(t, Config{MaxCount: 3, MaxItem: 8 << 10})
	defer q.Close()
	if _, err := q.Put(t.Context(), Item{Body: make([]byte, 9<<10)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	for range 3 {
		put(t, q, Item{Rule: "r"})
	}
	if _, err := q.Put(t.Context(), Item{}); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	eventually(t, "counted", func() bool { // the index lags
		c := q.Counts(t.Context())
		return c.Queued == 3 && c.Rejected == 2 && c.Accepted == 3
	})
}

func TestFullOfBytes(t *testing.T) {
	t.Parallel()
	q := open(t, Config{MaxBytes: 1 << 20})
	defer q.Close()
	accepted := 0
	for {
		if _, err := q.Put(t.Context(), Item{Body: make([]byte, 100<<10)}); errors.Is(err, ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if accepted++; accepted > 10 {
			t.Fatal("the queue is never full")
		}
	}
	if accepted < 9 {
		t.Errorf("only %d of 100 KiB fit in 1 MiB", accepted)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	up, inside, leave := newUpstream(), make(chan struct{}), make(chan struct{})
	up.answer("/long", func(*Item) Outcome {
		close(inside)
		<-leave
		return Outcome{Status: 200}
	})
	var open atomic.Bool
	q, _ := run(t, Config{}, func(ctx context.Context, it *Item, begin func() error) Outcome {
		if it.Rule == "closed" && !open.Load() {
			return later(20 * time.Millisecond)
		}
		return up.deliver(ctx, it, begin)
	})
	waiting, second := put(t, q, Item{Rule: "closed", Target: "/never"}), put(t, q, Item{Rule: "closed", Target: "/second"})
	long := put(t, q, Item{Rule: "r", Target: "/long"})
	<-inside
	if _, err := q.Cancel(t.Context(), long); !errors.Is(err, ErrDelivering) {
		t.Errorf("cancelled while delivered: %v", err)
	}
	if st, _ := q.Get(t.Context(), second); st == nil || st.Position < 1 || st.Position > 2 || st.State != Queued {
		t.Errorf("the second is %+v", st)
	}
	for range 2 {
		if _, err := q.Cancel(t.Context(), waiting); err != nil {
			t.Errorf("cancelled: %v", err)
		}
	}
	open.Store(true)
	close(leave)
	eventually(t, "done", isState(t, q, long, Done))
	eventually(t, "done", isState(t, q, second, Done))
	eventually(t, "cancelled", isState(t, q, waiting, Cancelled))
	if _, err := q.Cancel(t.Context(), long); !errors.Is(err, ErrDone) {
		t.Errorf("cancelled when done: %v", err)
	}
	for _, id := range []string{newID(), "x", ""} {
		if _, err := q.Cancel(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("cancelled %q: %v", id, err)
		}
	}
	for _, d := range up.deliveries() {
		if d.target == "/never" {
			t.Error("a cancelled item was delivered")
		}
	}
}

// A cancellation and a delivery of the same item never both succeed.
func TestCancelRace(t *testing.T) {
	t.Parallel()
	up := newUpstream()
	q, _ := run(t, Config{}, up.deliver)
	cancelled := map[string]bool{}
	var ids []string
	for range 100 {
		id := put(t, q, Item{Rule: "r", Target: "/x"})
		ids = append(ids, id)
		_, err := q.Cancel(t.Context(), id)
		cancelled[id] = err == nil
	}
	leaves(t, q, 0)
	came := map[string]bool{}
	for _, d := range up.deliveries() {
		came[d.id] = true
	}
	for _, id := range ids {
		if came[id] == cancelled[id] {
			t.Errorf("cancelled %v and delivered %v", cancelled[id], came[id])
		}
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	up := newUpstream()
	up.answer("/x", func(*Item) Outcome { return Outcome{Status: 500, Body: []byte("no")} })
	q, _ := run(t, Config{}, up.deliver)
	id := put(t, q, Item{Rule: "r", Key: "k", Target: "/x", Attempts: 2})
	if _, err := q.Requeue(t.Context(), id); !errors.Is(err, ErrNotDead) && !errors.Is(err, ErrUnavailable) {
		t.Errorf("requeued while queued: %v", err)
	}
	eventually(t, "dead", isState(t, q, id, Dead))
	st, err := q.Get(t.Context(), id)
	if err != nil || st.Error != "response 500 Internal Server Error" || st.Result == nil || string(st.Result.Body) != "no" || st.Attempts != 2 {
		t.Errorf("dead: %+v, %v", st, err)
	}
	up.answer("/x", nil)
	if _, err := q.Requeue(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "done", isState(t, q, id, Done))
	if _, err := q.Requeue(t.Context(), id); !errors.Is(err, ErrNotDead) {
		t.Errorf("requeued when done: %v", err)
	}
	if _, err := q.Requeue(t.Context(), newID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("requeued an unknown item: %v", err)
	}
	got := up.deliveries()
	if len(got) != 3 || got[2].key != id {
		t.Errorf("deliveries: %+v", got)
	}
}

// Items survive the process, and dead letters remain dead letters.
func TestReopened(t *testing.T) {
	t.Parallel()
	directory, up := quick(t), newUpstream()
	up.answer("/dead", always(500))
	q, stop := run(t, Config{Directory: directory}, up.deliver)
	dead := put(t, q, Item{Rule: "r", Target: "/dead", Attempts: 1})
	done := put(t, q, Item{Rule: "r", Target: "/done", Body: []byte("b")})
	eventually(t, "dead", isState(t, q, dead, Dead))
	eventually(t, "done", isState(t, q, done, Done))
	stop()
	q = open(t, Config{Directory: directory})
	kept := put(t, q, Item{Rule: "r", Target: "/kept"})
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q, _ = run(t, Config{Directory: directory}, up.deliver)
	eventually(t, "delivered", isState(t, q, kept, Done))
	for id, want := range map[string]State{dead: Dead, done: Done} {
		if st, err := q.Get(t.Context(), id); err != nil || st.State != want {
			t.Errorf("%s is %+v, %v", want, st, err)
		}
	}
	if n := len(up.deliveries()); n != 3 {
		t.Errorf("%d deliveries, want 3", n)
	}
	if _, err := Open(Config{Directory: directory}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("opened twice: %v", err)
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	q, _ := run(t, Config{}, func(context.Context, *Item, func() error) Outcome {
		return later(10 * time.Millisecond)
	})
	id := put(t, q, Item{Rule: "r", Expires: time.Now().Add(50 * time.Millisecond)})
	behind := put(t, q, Item{Rule: "r", Expires: time.Now().Add(time.Hour)})
	eventually(t, "dead", isState(t, q, id, Dead))
	if st, err := q.Get(t.Context(), id); err != nil || st.Error != "expired before delivery" {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := q.Get(t.Context(), behind); err != nil || st.State != Queued {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestExpiresOnTime: an item expires on time, regardless of the interval of sweeps and of the time at which the rules expect
// room. Retry-After of the status is the earlier of both.
func TestExpiresOnTime(t *testing.T) {
	t.Parallel()
	tried := make(chan struct{}, 100)
	q, _ := run(t, Config{sweep: time.Hour}, func(context.Context, *Item, func() error) Outcome {
		tried <- struct{}{}
		return later(20 * time.Second)
	})
	poll := func(id string) string {
		w := httptest.NewRecorder()
		q.Handler().ServeHTTP(w, httptest.NewRequest("GET", StatusPath(id), nil))
		return w.Header().Get("Retry-After")
	}
	late := put(t, q, Item{Rule: "r", Key: "late", Expires: time.Now().Add(time.Hour)})
	soon := put(t, q, Item{Rule: "r", Key: "soon", Expires: time.Now().Add(9 * time.Second)})
	<-tried
	<-tried
	eventually(t, "Retry-After is set", func() bool { return poll(late) == "20" && poll(soon) == "9" })
	first := put(t, q, Item{Rule: "r", Key: "late", Expires: time.Now().Add(300 * time.Millisecond)})
	second := put(t, q, Item{Rule: "r", Key: "late", Expires: time.Now().Add(200 * time.Millisecond)})
	for _, id := range []string{second, first} {
		eventually(t, "dead", isState(t, q, id, Dead))
		st, err := q.Get(t.Context(), id)
		if err != nil || st.Changed.Before(st.Expires) {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if got := poll(first); got != "" {
		t.Errorf("Retry-After of a dead letter is %s s", got)
	}
}

func TestResultsEnd(t *testing.T) {
	t.Parallel()
	up := newUpstream()
	q, _ := run(t, Config{}, up.deliver)
	id := put(t, q, Item{Rule: "r", Results: time.Second})
	eventually(t, "done", isState(t, q, id, Done))
	eventually(t, "expired", func() bool { _, err := q.Get(t.Context(), id); return errors.Is(err, ErrNotFound) })
}

func TestEncrypted(t *testing.T) {
	t.Parallel()
	directory, up := quick(t), newUpstream()
	key := []byte(strings.Repeat("k", KeySize))
	const secret = "a-secret-that-nobody-reads"
	q := open(t, Config{Directory: directory, EncryptionKey: key})
	id := put(t, q, Item{Rule: secret, Key: secret, Target: "/" + secret, Header: http.Header{"X": {secret}}, Body: []byte(secret)})
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(directory, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if d.IsDir() {
			return nil
		}
		files++
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), secret) {
			t.Errorf("%s contains plaintext", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatal(files, err)
	}
	for _, wrong := range [][]byte{nil, []byte(strings.Repeat("x", KeySize))} {
		if _, err := Open(Config{Directory: directory, EncryptionKey: wrong}); err == nil || !strings.Contains(err.Error(), "encryption_key_file") {
			t.Errorf("with another key: %v", err)
		}
	}
	q, _ = run(t, Config{Directory: directory, EncryptionKey: key}, up.deliver)
	eventually(t, "done", isState(t, q, id, Done))
	if st, _ := q.Get(t.Context(), id); string(st.Result.Body) != secret {
		t.Errorf("the result is %+v", st.Result)
	}
}

// After a crash at any step the next process continues from there.
func TestEndedBetween(t *testing.T) {
	t.Parallel()
	directory, up := quick(t), newUpstream()
	q := open(t, Config{Directory: directory})
	begin := func(state State) *activeDelivery {
		id := put(t, q, Item{Rule: "r", Key: "k", Target: "/" + state.String()})
		seq, err := q.writeState(id, 0, &itemState{state: state, owner: "another", attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		m, err := q.last(t.Context(), q.current.Load().items, "item", id)
		if err != nil {
			t.Fatal(err)
		}
		return &activeDelivery{q: q, id: id, itemSeq: m.Sequence, stateSeq: seq, itemHeader: itemHeader{results: time.Hour}}
	}
	begun, written, stray, cancelled := begin(Delivering), begin(Delivering), begin(Delivering), begin(Cancelled)
	s := q.current.Load()
	for _, a := range []*activeDelivery{written, stray} { // with a stored result
		if err := q.writeResult(s, a, &itemState{state: Done, result: &Result{Status: 200}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.items.DeleteMsg(t.Context(), stray.itemSeq); err != nil { // of one item only the state is left
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q, _ = run(t, Config{Directory: directory}, up.deliver)
	for a, want := range map[*activeDelivery]State{begun: Done, written: Done, stray: Done, cancelled: Cancelled} {
		eventually(t, want.String(), isState(t, q, a.id, want))
	}
	leaves(t, q, 0)
	got := up.deliveries()
	if len(got) != 1 || got[0].id != begun.id || got[0].attempt != "2" {
		t.Errorf("deliveries: %+v", got)
	}
}
