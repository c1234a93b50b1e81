package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/textproto"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// maxSmallBody is the maximum size of a body that is buffered before the request is sent, so that a slow caller does not occupy
// a connection and one write sends the whole request.
const maxSmallBody = 16 << 10

// usesPool reports whether a request can be sent by the pool, because it needs no feature that only http.Transport has.
func usesPool(r *http.Request) bool {
	return r.ContentLength >= 0 && r.ContentLength <= maxSmallBody && len(r.Trailer) == 0 && len(r.Header["Expect"]) == 0
}

// readSmall reads the body of a request for the pool, with an idle timeout for callers that stop sending.
func (rt *roundTrip) readSmall() *failure {
	r := rt.r
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	turn := rt.attempt
	timer := after(rt.group.cfg.Timeouts.Idle, func() { rt.expire(turn, quiet) })
	body := make([]byte, r.ContentLength, r.ContentLength+1)
	_, err := io.ReadFull(r.Body, body)
	if err == nil {
		// Read EOF too: only then does the HTTP server detect that the caller has disconnected.
		_, err = r.Body.Read(body[len(body):cap(body)])
	}
	timer.end()
	rt.endAttempt()
	switch {
	case rt.stalled != moving: // it no longer changes after endAttempt
		return &failure{kind: failRequestBody, err: errCallerStalled}
	case err != nil && err != io.EOF:
		return failureOf(r, &requestError{err, true}, false)
	}
	rt.smallBody = body
	return nil
}

// roundTripHTTP1 sends the request on a connection of the pool and reads the head of the response.
func (rt *roundTrip) roundTripHTTP1(s *server) *failure {
	buf := heads.Get().(*[]byte)
	defer heads.Put(buf)
	head, err := appendHead((*buf)[:0], rt.r, s.url.Host, len(rt.smallBody))
	if err != nil {
		return &failure{kind: failRequest, err: err}
	}
	head = append(head, rt.smallBody...)
	if cap(head) <= 64<<10 {
		*buf = head
	}
	ctx := rt.r.Context()
	for fresh := false; ; fresh = true {
		c, err := s.pool.get(ctx, fresh)
		if err != nil {
			return failureOf(rt.r, err, false)
		}
		rt.mu.Lock()
		rt.conn = c
		rt.mu.Unlock()
		rt.stopClosing = context.AfterFunc(ctx, c.closeNow)
		sent := time.Now()
		res, err := rt.writeAndRead(c, head, s.group.cfg.Timeouts.Header)
		if err == nil {
			rt.res = res
			rt.expectBody(c)
			return nil
		}
		answered, reused := c.use.bytesRead > 0, c.use.reused
		rt.release(false)
		f := failureOf(rt.r, err, answered)
		rt.excuse(f, len(head)-len(rt.smallBody))
		if fresh || !reused || f.kind != failRepeatable || ctx.Err() != nil || !rt.resend.may(sent) {
			return f
		}
		// The server has closed an idle connection, as it may at any time, while this request was on its way. This is not a
		// failure of the server.
	}
}

// writeAndRead writes a request and reads the head of its response.
func (rt *roundTrip) writeAndRead(c *pooledConn, request []byte, within time.Duration) (*http.Response, error) {
	c.use.readLimit = maxHeader
	_ = c.SetDeadline(time.Now().Add(within)) // also for writing, which blocks if the server does not read
	if _, err := c.Conn.Write(request); err != nil {
		return nil, err
	}
	for {
		res, err := http.ReadResponse(c.in, rt.r)
		if err != nil {
			return nil, noEOF(err)
		}
		if err := rt.checkStatus(res); err != nil {
			return nil, err
		}
		if res.StatusCode >= 200 {
			c.use.readLimit = math.MaxInt64
			return res, nil
		}
		if ok, _ := rt.forwards1xx(res.StatusCode); ok { // checkStatus has handled the error
			rt.write1xx(rt.attempt, res.StatusCode, textproto.MIMEHeader(res.Header))
		}
	}
}

// noEOF converts io.EOF to io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// expectBody starts the idle timer for the body of the response, unless the body is completely buffered.
func (rt *roundTrip) expectBody(c *pooledConn) {
	res := rt.res
	if res.ContentLength >= 0 && int64(c.in.Buffered()) >= res.ContentLength || res.Body == http.NoBody {
		return
	}
	_ = c.SetDeadline(time.Time{}) // the deadline was for the head
	rt.resetIdleTimer()
}

// release returns the connection to the pool if again is set, and otherwise closes it.
func (rt *roundTrip) release(again bool) {
	rt.mu.Lock()
	c := rt.conn
	rt.conn = nil
	rt.mu.Unlock()
	if !rt.stopClosing() || !again {
		c.Close()
		return
	}
	c.pool.put(c)
}

// A connPool is a pool of connections to an HTTP/1 server without TLS. The goroutine that serves the request does the work for
// which http.Transport uses two goroutines per connection; see docs/decisions/011.
type connPool struct {
	server *server

	mu     sync.Mutex    // guards the following
	idle   []*pooledConn // the most recently used is the last
	reaper *time.Timer
	closed bool
}

// get returns an idle connection, or a new one.
func (l *connPool) get(ctx context.Context, fresh bool) (*pooledConn, error) {
	for !fresh {
		c := l.pop()
		if c == nil {
			break
		}
		// Unread data on an idle connection means that responses can no longer be matched to requests.
		if time.Since(c.idleSince) < keepIdle && c.isOpen() {
			c.use.reused = true
			return c, nil
		}
		c.Close()
	}
	conn, err := l.server.dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	c := &pooledConn{Conn: conn, pool: l, isOpen: newConnCheck(conn), closeNow: func() { conn.Close() }}
	c.in = bufio.NewReaderSize(c, 4<<10)
	return c, nil
}

func (l *connPool) pop() *pooledConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.idle) - 1
	if last < 0 {
		return nil
	}
	c := l.idle[last]
	l.idle[last] = nil
	l.idle = l.idle[:last]
	return c
}

// put adds a connection to the idle ones, or closes it if data of the last request is left on it or the pool is full.
func (l *connPool) put(c *pooledConn) {
	if !c.reset() {
		c.Close()
		return
	}
	c.idleSince = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) >= l.server.group.cfg.MaxIdleConns {
		c.Close()
		return
	}
	l.idle = append(l.idle, c)
	if l.reaper == nil {
		l.reaper = time.AfterFunc(keepIdle, l.reap)
	}
}

// reap closes connections that have been idle for keepIdle.
func (l *connPool) reap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, now := 0, time.Now()
	for old < len(l.idle) && now.Sub(l.idle[old].idleSince) >= keepIdle {
		l.idle[old].Close()
		old++
	}
	l.idle = append(l.idle[:0], l.idle[old:]...)
	l.reaper = nil
	if len(l.idle) > 0 {
		l.reaper = time.AfterFunc(keepIdle-now.Sub(l.idle[0].idleSince), l.reap)
	}
}

func (l *connPool) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.idle {
		c.Close()
	}
	l.idle = nil
	if l.reaper != nil {
		l.reaper.Stop()
	}
}

// A pooledConn is one connection of a connPool.
type pooledConn struct {
	net.Conn
	pool      *connPool
	closeNow  func() // closes the connection when the request is cancelled
	in        *bufio.Reader
	isOpen    func() bool
	idleSince time.Time

	use connUse
}

// connUse is the state of a connection that belongs to one round trip.
type connUse struct {
	reused    bool
	readLimit int64 // bytes that may still be read
	bytesRead int64 // since the request was sent
}

// reset clears the state of the last round trip and reports whether the connection can be reused. All state of a round trip is
// cleared here and nowhere else.
func (c *pooledConn) reset() bool {
	if c.in.Buffered() > 0 {
		return false // data after the response
	}
	c.use = connUse{}
	c.in.Reset(c) // also clears a stored read error
	return c.SetDeadline(time.Time{}) == nil
}

var errHeaderTooLong = errors.New("response header too long")

// Read counts the bytes and applies readLimit.
func (c *pooledConn) Read(p []byte) (int, error) {
	u := &c.use
	if u.readLimit <= 0 {
		if u.readLimit == 0 {
			u.readLimit-- // it is counted once
			bounds.UpstreamHeader.Reached()
		}
		return 0, errHeaderTooLong
	}
	if int64(len(p)) > u.readLimit {
		p = p[:u.readLimit]
	}
	n, err := c.Conn.Read(p)
	u.readLimit -= int64(n)
	u.bytesRead += int64(n)
	return n, err
}
