package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/buffers"
)

const keepingFor = `
client_ip: {trusted_proxies: [127.0.0.1]}
rules:
  - {name: none, match: {path: /later}, limit: 1/h, on_limit: queue}
`

// keeps starts a gateway that queues all requests to /later except the first. read counts the bytes of bodies that it has read.
func keeps(t *testing.T, change func(*queue.Config)) (address string, read *atomic.Int64) {
	t.Helper()
	q := newQueue(t, change)
	read = new(atomic.Int64)
	address = before(t, echo, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, keepingFor)
		c.Queue, c.InternalHandler = q, q.Handler()
		c.OnDone = func(x *gateway.RequestContext) { read.Add(x.BytesIn()) }
	})
	if a := get(t, address, "/later"); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	return address, read
}

// setBudget sets the memory limit for bodies until the test ends, and fails the test if memory is in use then.
func setBudget(t *testing.T, max int64) {
	t.Helper()
	buffers.Process.SetMax(max)
	t.Cleanup(func() {
		buffers.Process.SetMax(buffers.DefaultMax)
		if used := buffers.Process.Used(); used != 0 {
			t.Errorf("%d bytes are still in use", used)
		}
	})
}

// A body that is too large to be queued is not read if its Content-Length is too large, and otherwise only up to the maximum.
func TestEnqueueReadsWhatFits(t *testing.T) {
	const item = 64 << 10
	address, read := keeps(t, func(c *queue.Config) { c.MaxItem = item })
	was := bounds.QueueItemSize.Count()
	raw(t, address, "POST /later HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 60000000\r\n\r\n").isProblem(t, http.StatusRequestEntityTooLarge)
	if n := read.Load(); n != 0 {
		t.Errorf("%d bytes were read of a body with a too large Content-Length", n)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { // until the gateway stops reading
		_, err := io.WriteString(conn, "POST /later HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		for chunk := fmt.Sprintf("8000\r\n%s\r\n", strings.Repeat("x", 0x8000)); err == nil; {
			_, err = io.WriteString(conn, chunk)
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("%v, %v", resp, err)
	}
	for read.Load() == 0 && t.Context().Err() == nil {
		<-time.After(time.Millisecond)
	}
	if n := read.Load(); n > item+4<<10 {
		t.Errorf("%d bytes were read of a body, maximum %d", n, item)
	}
	if n := bounds.QueueItemSize.Count() - was; n != 2 {
		t.Errorf("the bound was reached %d times, want 2", n)
	}
}

// An address with many incomplete bodies uses at most its share of the memory for bodies. Other addresses are served.
func TestEnqueueMemory(t *testing.T) {
	const most, item, sent = 8 << 20, 256 << 10, 200 << 10
	setBudget(t, most)
	address, _ := keeps(t, func(c *queue.Config) { c.MaxItem = item })
	head := fmt.Sprintf("POST /later HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: %%s\r\nContent-Length: %d\r\n\r\n", sent+1)
	refused := make(chan answer, 40)
	conns := make([]net.Conn, cap(refused))
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		conns[i] = conn
		go func() {
			_, _ = fmt.Fprintf(conn, head+strings.Repeat("x", sent), fmt.Sprintf("2001:db8::%x", i+1))
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				refused <- answer{status: resp.StatusCode, header: resp.Header}
			}
		}()
	}
	// Each uses 256 KiB, so that 8 of them use the share of one client, 1/4 of 8 MiB.
	for range len(conns) - most/buffers.ClientShare/item {
		if a := <-refused; a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("%+v", a)
		}
		if used := buffers.Process.Used(); used > most/buffers.ClientShare {
			t.Fatalf("one address uses %d bytes of %d", used, most)
		}
	}
	body := strings.Repeat("y", sent+1)
	if a := raw(t, address, fmt.Sprintf(head, "192.0.2.1")+body); a.status != http.StatusAccepted {
		t.Errorf("another address: %+v", a)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	for buffers.Process.Used() > 0 && t.Context().Err() == nil {
		<-time.After(time.Millisecond)
	}
	if a := raw(t, address, fmt.Sprintf(head, "2001:db8::1")+body); a.status != http.StatusAccepted {
		t.Errorf("the same address, later: %+v", a)
	}
}

// weighing records the memory in use for bodies while an item is stored.
type weighing struct {
	*queue.Queue
	used int64
}

func (w *weighing) Put(ctx context.Context, it queue.Item) (string, error) {
	w.used = buffers.Process.Used()
	return w.Queue.Put(ctx, it)
}

// The memory of the copies that the queue makes of a body while it stores it is reserved too.
func TestEnqueueCopies(t *testing.T) {
	setBudget(t, 8<<20)
	q := &weighing{Queue: newQueue(t, func(*queue.Config) {})}
	address := before(t, echo, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, keepingFor)
		c.Queue = q
	})
	const size = 200 << 10
	for i, want := range []int{http.StatusOK, http.StatusAccepted} {
		a := raw(t, address, fmt.Sprintf("POST /later HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)))
		if a.status != want {
			t.Fatalf("%d: %+v", i, a)
		}
	}
	if q.used < 4*size {
		t.Errorf("%d bytes in use for a body of %d and its 3 copies", q.used, size)
	}
}
