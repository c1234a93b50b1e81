package queue

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Neither one key nor, without keys, one client can fill the queue. Its share has room again when its items are removed, but
// not after a restart of the process.
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
	fill(3, Item{Client: client("2001:db8::1")}, Item{Client: client("2001:db8::2")}) // the same network
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
	fill(6, Item{}) // without client
}

// The counts are correct for any order of writes and messages of the streams.
func TestSharesCount(t *testing.T) {
	a, b := &itemHeader{rule: "r", key: "a", size: 5}, &itemHeader{rule: "r", key: "b", size: 7}
	x := newIndex(&Queue{cfg: Config{MaxKeyCount: 2, MaxKeyBytes: 100, Workers: 1}, woken: make(chan struct{}, 1), deliveries: map[string]*activeDelivery{}})
	want := func(n, bytes int64) {
		t.Helper()
		if u := x.shares.used[a.share()]; u != (use{n, bytes}) {
			t.Errorf("%+v, want %d items with %d bytes", u, n, bytes)
		}
	}
	if !x.announce("1", a) || !x.announce("2", a) || x.announce("3", a) || !x.announce("4", b) {
		t.Error("the second item of a key is rejected")
	}
	want(2, 10)
	x.onItem("1", 1, *a) // the stream delivers a reserved item
	want(2, 10)
	x.withdraw("2") // the write failed
	want(1, 5)
	x.onItem("2", 2, *a) // but the item was stored
	x.onItem("2", 2, *a)
	want(2, 10)
	x.drop("1")
	x.drop("1")
	want(1, 5)
	x.announce("5", a)
	x.drop("5") // removed before the stream delivered it
	x.onItem("5", 5, *a)
	want(1, 5)
	x.drop("2")
	x.drop("4")
	if len(x.shares.used) != 0 || len(x.shares.reserved) != 0 {
		t.Errorf("used %v and reserved %v, want none", x.shares.used, x.shares.reserved)
	}
}
