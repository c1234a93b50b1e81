// Package buffers bounds the memory that buffered bodies take: of one body, of all bodies of one client address, and of
// all bodies in the process.
package buffers

import (
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// DefaultMax is the default maximum of all buffered bodies together, in bytes.
const DefaultMax = 128 << 20

// ClientShare is the part of the maximum that one client address may take: 1/ClientShare.
const ClientShare = 4

// Errors of a [Buffer].
var (
	ErrTooLarge = errors.New("buffers: the body is larger than may be buffered")
	ErrFull     = errors.New("buffers: buffered bodies take all the memory that they may")
)

// Process is the budget of this process. There is one because there is one memory.
var Process = New(DefaultMax)

// Budget is a number of bytes that buffers share. All methods may be called concurrently.
type Budget struct {
	mu      sync.Mutex
	max     int64
	used    int64
	clients map[netip.Prefix]int64 // bytes by client; no entry is 0
}

// New returns a budget of max bytes.
func New(max int64) *Budget { return &Budget{max: max, clients: map[netip.Prefix]int64{}} }

// SetMax changes the maximum. Buffers that hold more keep it.
func (b *Budget) SetMax(max int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.max = max
}

// Used returns how many bytes are taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// take takes n bytes for a client and reports whether they were free.
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
	max    int   // of the body
	taken  int64 // of the budget
	b      []byte
}

// Buffer returns an empty buffer for a body of at most max bytes. An IPv6 client counts by its /64; the zero Addr is no
// client, which only the maximum of the budget bounds.
func (b *Budget) Buffer(client netip.Addr, max int) Buffer {
	return Buffer{budget: b, client: keyenc.Subscriber(client, 64), max: max}
}

// Append adds to the body, or fails with ErrTooLarge or ErrFull and leaves it as it was. It takes memory as the body
// arrives: a client that announces much and sends little takes little.
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

// ReadAll adds all that r has, and fails as Append does.
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

// Reserve takes n bytes more of the budget, for copies of the body, and reports whether they were free. Free gives them
// back.
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

// Reset empties the buffer. It keeps memory for a body of usual size, and gives back what a large one took.
func (b *Buffer) Reset() {
	if cap(b.b) > 64<<10 {
		b.Free()
	}
	b.b = b.b[:0]
}

// Free gives back all that the buffer has taken. It may be used again.
func (b *Buffer) Free() {
	if b.budget == nil {
		return
	}
	b.release(b.taken)
	b.b = nil
}
