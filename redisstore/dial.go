package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/arrival"
	"github.com/sluiceproject/sluice/internal/goroutines"
	"github.com/sluiceproject/sluice/internal/replyguard"
)

// dialer opens the client's connections at a bounded rate. When many connections are lost at once, or none can be
// opened, each address is dialled dialBurst times and then at most 5 times per second, because more would overload a
// server in trouble.
//
// Connecting may take longer than the caller's timeout. It therefore runs in the background, and a connection that is
// ready too late for its caller is kept for the next one.
type dialer struct {
	network string   // tcp or unix
	keep    []string // addresses of sentinels, whose connections drop does not close
	life    context.Context
	end     context.CancelFunc // cancels pending dials
	dials   goroutines.Group   // pending dials

	mu        sync.Mutex // guards the fields below
	addresses map[string]*dialAddress
	open      map[net.Conn]string // to their addresses
	waits     map[*arrival.Waits]bool
	closed    bool
	dropped   time.Time // time of the last drop
}

// dialAddress is the dialling state of one address.
type dialAddress struct {
	nextDialAt time.Time // when the full burst is available again
	failed     error     // error of the last attempt
	kept       []net.Conn
}

const (
	dialBurst    = 16                     // connections at once: several for each server, and as many to reconnect
	dialInterval = 200 * time.Millisecond // then one connection per interval
	maxKept      = 4
	dropInterval = time.Second // minimum between two drops: while a wrong server still replies, it must not be dialled for every call
)

func newDialer(network string, keep ...string) *dialer {
	d := &dialer{
		network: network, keep: keep, addresses: make(map[string]*dialAddress), open: make(map[net.Conn]string),
		waits: make(map[*arrival.Waits]bool),
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// dial opens a connection. It has the signature that rueidis requires.
func (d *dialer) dial(ctx context.Context, addr string, by *net.Dialer, secure *tls.Config) (net.Conn, error) {
	conn, err := d.reserve(addr, time.Now())
	if conn != nil || err != nil {
		return conn, err
	}
	made := make(chan net.Conn)
	failed := make(chan error, 1)
	started := d.dials.Go(func() {
		conn, err := d.make(context.WithoutCancel(ctx), addr, by, secure)
		if err != nil {
			failed <- err
			return
		}
		select {
		case made <- conn:
		case <-ctx.Done():
			d.keepFor(addr, conn)
		}
	})
	if !started {
		return nil, sluice.ErrClosed
	}
	select {
	case conn := <-made:
		return conn, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: d.network, Err: ctx.Err()}
	}
}

// reserve returns a kept connection, or nil, nil if the caller may dial, or an error if it must not dial now.
func (d *dialer) reserve(addr string, now time.Time) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, sluice.ErrClosed
	}
	at := d.addresses[addr]
	if at == nil {
		at = new(dialAddress)
		d.addresses[addr] = at
	}
	if n := len(at.kept); n > 0 {
		conn := at.kept[n-1]
		at.kept = at.kept[:n-1]
		return conn, nil
	}
	if ahead := at.nextDialAt.Sub(now); ahead > (dialBurst-1)*dialInterval {
		if at.failed != nil {
			return nil, fmt.Errorf("%w: %w", errNotYet, at.failed)
		}
		return nil, errNotYet
	}
	if at.nextDialAt.Before(now) {
		at.nextDialAt = now
	}
	at.nextDialAt = at.nextDialAt.Add(dialInterval + rand.N(dialInterval/2)) // jitter, so that many instances do not dial in step
	return nil, nil
}

func (d *dialer) make(ctx context.Context, addr string, by *net.Dialer, secure *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	waits := arrival.Dialing()
	if !slices.Contains(d.keep, addr) {
		d.mu.Lock()
		d.waits[waits] = true
		d.mu.Unlock()
	}
	conn, err := by.DialContext(ctx, d.network, addr)
	if err == nil {
		conn = waits.Made(conn)
	}
	if err == nil && secure != nil {
		conn, err = handshake(ctx, conn, addr, secure)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addresses[addr].failed = err
	if err == nil && d.closed {
		_ = conn.Close()
		err = sluice.ErrClosed
	}
	if err != nil {
		delete(d.waits, waits)
		return nil, err
	}
	tracked := &trackedConn{Conn: replyguard.Rueidis(conn, addr, waits), by: d, addr: addr, secure: secure != nil, waits: waits}
	d.open[tracked] = addr
	return tracked, nil
}

// patience returns how long a server may still take to reply; see [sluice.Arrivals].
func (d *dialer) patience(budget time.Duration) (left time.Duration, own bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waits) == 0 {
		return 0, false
	}
	return arrival.Patience(budget, maps.Keys(d.waits))
}

// handshake performs the TLS handshake on a connection.
func handshake(ctx context.Context, conn net.Conn, addr string, secure *tls.Config) (net.Conn, error) {
	if secure.ServerName == "" {
		secure = secure.Clone()
		secure.ServerName, _, _ = net.SplitHostPort(addr)
	}
	private := tls.Client(conn, secure)
	if err := private.HandshakeContext(ctx); err != nil {
		conn.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: no TLS handshake reply: check that the port is the server's TLS port", err)
		}
		return nil, &net.OpError{Op: "dial", Net: "tls", Err: err}
	}
	return private, nil
}

func (d *dialer) keepFor(addr string, conn net.Conn) {
	d.mu.Lock()
	at := d.addresses[addr]
	keep := !d.closed && len(at.kept) < maxKept
	if keep {
		at.kept = append(at.kept, conn)
	}
	d.mu.Unlock()
	if !keep {
		conn.Close()
	}
}

// answered records the server's first message. Unless that is an error, the full dial burst is available again.
func (d *dialer) answered(addr string, said []byte, err error) {
	line, _, _ := strings.Cut(string(said[:min(len(said), maxErrorLine)]), "\r\n")
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.addresses[addr]
	text, isError := strings.CutPrefix(line, "-")
	switch {
	case isError:
		at.failed = ServerError(text)
	case len(said) > 0:
		at.nextDialAt = time.Time{}
	case !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed): // which carry no reason
		at.failed = err
	}
}

// maxErrorLine is the maximum length of a recorded error in bytes.
const maxErrorLine = 200

// reason returns why no connection could be opened, or nil if that is unknown.
func (d *dialer) reason() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.addresses {
		if at.failed != nil {
			return at.failed
		}
	}
	return nil
}

// drop closes the connections, so that new ones are opened: to the address that the name resolves to by then, or that
// the sentinels return. A demoted primary keeps old connections open and rejects every write on them.
func (d *dialer) drop(now time.Time) {
	d.mu.Lock()
	again := now.Sub(d.dropped) < dropInterval
	if !again {
		d.dropped = now
	}
	d.mu.Unlock()
	if !again {
		d.closeAll(false)
	}
}

// close closes all connections and cancels pending dials. Connections of a client that was closed while in use may
// still be open, and the client's goroutines would read from them forever.
func (d *dialer) close() {
	d.closeAll(true)
	d.end()
	d.dials.Close()
}

func (d *dialer) closeAll(last bool) {
	var gone []net.Conn
	d.mu.Lock()
	d.closed = d.closed || last
	for _, at := range d.addresses {
		gone = append(gone, at.kept...)
		at.kept = nil
	}
	for conn, addr := range d.open {
		if last || !slices.Contains(d.keep, addr) {
			gone = append(gone, conn)
		}
	}
	d.mu.Unlock()
	for _, conn := range gone {
		conn.Close()
	}
}

// trackedConn notifies the dialer of the server's first message, and when the connection is closed.
type trackedConn struct {
	net.Conn
	by       *dialer
	addr     string
	secure   bool
	waits    *arrival.Waits
	answered atomic.Bool
}

// Read records the server's first message. If that is an error, such as too many clients or a missing certificate, the
// server may close the connection before the client has read it.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.answered.Load() && !c.answered.Swap(true) {
		c.by.answered(c.addr, p[:n], err)
	}
	return n, err
}

// Write records that the server has closed the connection without a message, as it may do when it rejects a TLS client.
func (c *trackedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && c.secure && !c.answered.Swap(true) {
		c.by.answered(c.addr, nil, fmt.Errorf("%w: after the TLS handshake: the server may require a client certificate: see Config.TLS.Certificates", err))
	}
	return n, err
}

func (c *trackedConn) Close() error {
	c.by.mu.Lock()
	delete(c.by.open, c)
	delete(c.by.waits, c.waits)
	c.by.mu.Unlock()
	return c.Conn.Close()
}
