package buffers

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/internal/bounds"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// Allocated bytes are never more than the maximum and never less than the capacity of the buffers, and all of them are
// released.
func TestBudget(t *testing.T) {
	b := New(1 << 20)
	one := b.Buffer(addr("192.0.2.1"), 1<<20)
	piece := make([]byte, 1000)
	var err error
	for err == nil {
		if err = one.Append(piece); b.Used() != int64(cap(one.Bytes())) {
			t.Fatalf("%d are taken and %d held", b.Used(), cap(one.Bytes()))
		}
	}
	if !errors.Is(err, ErrFull) || b.Used() > 1<<18 {
		t.Errorf("one address got %d bytes: %v", b.Used(), err)
	}
	mapped := b.Buffer(addr("::ffff:192.0.2.1"), 1<<20)
	if err := mapped.Append(make([]byte, 1<<18)); !errors.Is(err, ErrFull) {
		t.Errorf("the same address, written otherwise: %v", err)
	}
	two := b.Buffer(addr("2001:db8::1"), 1<<18)
	if err := two.Append(make([]byte, 1<<18)); err != nil {
		t.Errorf("another address: %v", err)
	}
	three := b.Buffer(addr("2001:db8::ffff:1"), 1<<18)
	if err := three.Append(piece); !errors.Is(err, ErrFull) {
		t.Errorf("another address of the same /64: %v", err)
	}
	unknown := b.Buffer(netip.Addr{}, 1<<20)
	if err := unknown.Append(make([]byte, 1<<18+1)); err != nil {
		t.Errorf("no address: %v", err)
	}
	if unknown.Reserve(1 << 20) {
		t.Errorf("%d were taken of %d", b.Used(), 1<<20)
	}
	for _, buffer := range []*Buffer{&one, &mapped, &two, &three, &unknown} {
		buffer.Free()
	}
	if b.Used() != 0 || len(b.clients) != 0 {
		t.Errorf("%d are still taken, by %d clients", b.Used(), len(b.clients))
	}
	var zero Buffer
	zero.Free()
}

func TestBufferMax(t *testing.T) {
	b := New(1<<20).Buffer(netip.Addr{}, 10)
	if err := b.Append([]byte("0123456789")); err != nil || cap(b.Bytes()) != 10 {
		t.Errorf("%v, room for %d", err, cap(b.Bytes()))
	}
	if err := b.Append([]byte("x")); !errors.Is(err, ErrTooLarge) || string(b.Bytes()) != "0123456789" {
		t.Errorf("%v, %q", err, b.Bytes())
	}
	b.Reset()
	if err := b.Append([]byte("x")); err != nil || string(b.Bytes()) != "x" {
		t.Errorf("%v, %q", err, b.Bytes())
	}
}

func TestConcurrent(t *testing.T) {
	b := New(1 << 16)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			client := netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 3)})
			for range 200 {
				buffer := b.Buffer(client, 1<<15)
				for buffer.Append(make([]byte, 3000)) == nil {
					if used := b.Used(); used > 1<<16 {
						t.Errorf("%d bytes are taken", used)
					}
				}
				buffer.Free()
			}
		})
	}
	all.Wait()
	if b.Used() != 0 || len(b.clients) != 0 {
		t.Errorf("%d are still taken", b.Used())
	}
}

// A bound is counted once when it is exceeded, and not when it is reached exactly.
func TestCounts(t *testing.T) {
	all, address := bounds.BufferedBytes.Count(), bounds.BufferedBytesPerAddress.Count()
	count := func(what string, wantAll, wantAddress int64) {
		t.Helper()
		if n, m := bounds.BufferedBytes.Count()-all, bounds.BufferedBytesPerAddress.Count()-address; n != wantAll || m != wantAddress {
			t.Errorf("%s: the bounds were reached %d and %d times, want %d and %d", what, n, m, wantAll, wantAddress)
		}
	}
	b := New(1 << 20)
	one, rest := b.Buffer(addr("192.0.2.1"), 1<<20), b.Buffer(netip.Addr{}, 1<<20)
	if !one.Reserve(1 << 18) {
		t.Error("the share is not free")
	}
	count("the share", 0, 0)
	one.Reserve(1)
	count("more than the share", 0, 1)
	if !rest.Reserve(1<<20 - 1<<18) {
		t.Error("the rest is not free")
	}
	count("all", 0, 1)
	rest.Reserve(1)
	count("more than all", 1, 1)
}
