// Package buffers bounds the memory of buffered bodies: per body, per client address, and in total for the process.
package buffers

import (
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// DefaultMax is the default maximum size of all buffered bodies together, in bytes.
const DefaultMax = 128 << 20

// ClientShare is the divisor of the maximum per client address: max/ClientShare.
const ClientShare = 4

// Errors of a [Buffer].
var (
	ErrTooLarge = errors.New("buffers: body larger than the maximum for buffering")
	ErrFull     = errors.New("buffers: memory limit for buffered bodies reached")
)

// Process is the memory limit of this process, shared by all of its buffers.
var Process = New(DefaultMax)

// Budget is a memory limit in bytes that buffers share. All methods may be called concurrently.
type Budget struct {
	mu      sync.Mutex
	max     int64
	used    int64
	clients map[netip.Prefix]int64 // bytes per client; no entry means 0
}

// New returns a memory limit of max bytes.
func New(max int64) *Budget { return &Budget{max: max, clients: map[netip.Prefix]int64{}} }

// SetMax changes the maximum. Buffers that already hold more keep it.
func (b *Budget) SetMax(max int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.max = max
}

// Used returns the number of allocated bytes.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// take allocates n bytes for a client and reports whether they were free.
func (b *Budget) take(client netip.Prefix, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.max {
		bounds.BufferedBytes.Reached()
		return false
	}
	if client.IsValid() {
		if b.clients[client]+n > b.max/ClientShare {
			bounds.BufferedBytesPerAddress.Reached()
			return false
		}
		b.clients[client] += n
	}
	b.used += n
	return true
}

func (b *Budget) free(client netip.Prefix, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if !client.IsValid() {
		return
	}
	if b.clients[client] -= n; b.clients[client] <= 0 {
		delete(b.clients, client)
	}
}

// Buffer holds one body. It is not for concurrent use, and must be freed.
type Buffer struct {
	budget *Budget
	client netip.Prefix
	max    int   // maximum size of the body
	taken  int64 // bytes allocated from the budget
	b      []byte
}

// Buffer returns an empty buffer for a body of at most max bytes. IPv6 clients are counted by /64. The zero Addr has no
// limit per client.
func (b *Budget) Buffer(client netip.Addr, max int) Buffer {
	return Buffer{budget: b, client: keyenc.Subscriber(client, 64), max: max}
}

// Append adds to the body, or fails with ErrTooLarge or ErrFull and leaves it unchanged. It allocates as the body
// arrives, so that a client that announces a large body and sends little uses little.
func (b *Buffer) Append(p []byte) error {
	size := len(b.b) + len(p)
	if size > b.max {
		return ErrTooLarge
	}
	if size <= cap(b.b) {
		b.b = append(b.b, p...)
		return nil
	}
	room := min(b.max, max(size, 2*cap(b.b), 512))
	if !b.Reserve(room) {
		return ErrFull
	}
	old := b.b
	b.b = append(make([]byte, 0, room), old...)
	b.b = append(b.b, p...)
	b.release(int64(cap(old)))
	return nil
}

// ReadAll appends all of r, and fails as Append does.
func (b *Buffer) ReadAll(r io.Reader) error {
	piece := make([]byte, 4<<10)
	for {
		n, err := r.Read(piece)
		if err := b.Append(piece[:n]); err != nil {
			return err
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// Reserve allocates n more bytes of the budget, for copies of the body, and reports whether they were free. Free
// releases them.
func (b *Buffer) Reserve(n int) bool {
	if !b.budget.take(b.client, int64(n)) {
		return false
	}
	b.taken += int64(n)
	return true
}

func (b *Buffer) release(n int64) {
	b.budget.free(b.client, n)
	b.taken -= n
}

// Bytes returns the body. It is valid until the next call of another method.
func (b *Buffer) Bytes() []byte { return b.b }

// Reset empties the buffer. It keeps the memory of a body of usual size and releases that of a large one.
func (b *Buffer) Reset() {
	if cap(b.b) > 64<<10 {
		b.Free()
	}
	b.b = b.b[:0]
}

// Free releases all memory of the buffer, which may be used again.
func (b *Buffer) Free() {
	if b.budget == nil {
		return
	}
	b.release(b.taken)
	b.b = nil
}
