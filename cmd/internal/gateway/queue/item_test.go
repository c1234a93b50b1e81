package queue

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// One key cannot fill the queue for others, nor one client where there are no keys. It has room again when its items are
// gone, and none because the process has restarted.
func TestShares(t *testing.T) {
	t.Parallel()
	cfg := Config{Directory: t.TempDir(), MaxCount: 20, MaxKeyCount: 3, MaxKeyBytes: 64 << 10}
	q := open(t, cfg)
	client := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	try := func(it Item) (string, error) {
		t.Helper()
		it.Rule = "r"
		id, err := q.Put(t.Context(), it)
		if err != nil && !errors.Is(err, ErrShareFull) {
			t.Fatal(err)
		}
		return id, err
	}
	counts, sizes := bounds.QueueItemsPerKey.Count(), bounds.QueueBytesPerKey.Count()
	fill := func(want int, items ...Item) (last string) {
		t.Helper()
		got := 0
		for i := range 6 {
			if id, err := try(items[i%len(items)]); err == nil {
				got, last = got+1, id
			}
		}
		if got != want {
			t.Errorf("%+v: %d were accepted, want %d", items, got, want)
		}
		return last
	}
	last := fill(3, Item{Key: "ada"})
	fill(3, Item{Key: "bob", Ordered: true})
	fill(3, Item{Client: client("2001:db8::1")}, Item{Client: client("2001:db8::2")}) // one network
	fill(3, Item{Client: client("192.0.2.1")}, Item{Client: client("::ffff:192.0.2.1")})
	fill(1, Item{Key: "large", Body: make([]byte, 40<<10)})
	if n, size := bounds.QueueItemsPerKey.Count()-counts, bounds.QueueBytesPerKey.Count()-sizes; n < 12 || size < 5 {
		t.Errorf("the bounds were reached %d and %d times", n, size)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, cfg)
	defer q.Close()
	fill(0, Item{Key: "ada"}, Item{Key: "bob"}, Item{Client: client("2001:db8::3")}, Item{Client: client("192.0.2.1")})
	if _, err := q.Cancel(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := try(Item{Key: "ada"}); err != nil {
		t.Errorf("after one was cancelled: %v", err)
	}
	fill(0, Item{Key: "ada"})
	fill(6, Item{}) // of an unknown client
}

// What is counted is what there is, in whatever order writers and streams tell of items.
func TestSharesCount(t *testing.T) {
	a, b := &itemHeader{rule: "r", key: "a", size: 5}, &itemHeader{rule: "r", key: "b", size: 7}
	x := newIndex(&Queue{cfg: Config{MaxKeyCount: 2, MaxKeyBytes: 100, Workers: 1}, woken: make(chan struct{}, 1), deliveries: map[string]*activeDelivery{}})
	want := func(n, bytes int64) {
		t.Helper()
		if u := x.shares.used[a.share()]; u != (use{n, bytes}) {
			t.Errorf("%+v are counted, want %d with %d bytes", u, n, bytes)
		}
	}
	if !x.announce("1", a) || !x.announce("2", a) || x.announce("3", a) || !x.announce("4", b) {
		t.Error("not two of each key")
	}
	want(2, 10)
	x.onItem("1", 1, *a) // the stream tells of what was reserved
	want(2, 10)
	x.withdraw("2") // it could not be written
	want(1, 5)
	x.onItem("2", 2, *a) // and was after all
	x.onItem("2", 2, *a)
	want(2, 10)
	x.drop("1")
	x.drop("1")
	want(1, 5)
	x.announce("5", a)
	x.drop("5") // delivered before the stream told of it
	x.onItem("5", 5, *a)
	want(1, 5)
	x.drop("2")
	x.drop("4")
	if len(x.shares.used) != 0 || len(x.shares.reserved) != 0 {
		t.Errorf("%v and %v are left", x.shares.used, x.shares.reserved)
	}
}
