package upstream

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"sync"
	"time"
)

// maxSmallBody is the largest body that is read before a connection is used for it: no slow caller then holds up a server,
// and one write sends everything.
const maxSmallBody = 16 << 10

var heads = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// usesPool reports whether a request needs nothing that only http.Transport can do.
func usesPool(r *http.Request) bool {
	return r.ContentLength >= 0 && r.ContentLength <= maxSmallBody && len(r.Trailer) == 0 && len(r.Header["Expect"]) == 0
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
		if fresh || !reused || !f.repeatable || ctx.Err() != nil || !rt.resend.may(sent) {
			return f
		}
		// The server has closed a connection that nobody used, as it may at any time, while this request was on its way.
		// That says nothing against the server.
	}
}

// writeAndRead writes a request and reads the head of its answer.
func (rt *roundTrip) writeAndRead(c *pooledConn, request []byte, within time.Duration) (*http.Response, error) {
	c.use.readLimit = maxHeader
	_ = c.SetDeadline(time.Now().Add(within)) // for writing too: a server that does not read takes only so much
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
		if ok, _ := rt.forwards1xx(res.StatusCode); ok { // checkStatus has seen to the error
			rt.write1xx(rt.attempt, res.StatusCode, textproto.MIMEHeader(res.Header))
		}
	}
}

// expectBody watches over an answer's body, unless all of it has come with the head.
func (rt *roundTrip) expectBody(c *pooledConn) {
	res := rt.res
	if res.ContentLength >= 0 && int64(c.in.Buffered()) >= res.ContentLength || res.Body == http.NoBody {
		return
	}
	_ = c.SetDeadline(time.Time{}) // it was for the head
	rt.resetIdleTimer()
}

// noEOF makes an end that came too early look like one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readSmall reads the body of a request for the pool, with a watch over callers that stop sending.
func (rt *roundTrip) readSmall() *failure {
	r := rt.r
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	stalled := after(rt.idleTimeout, func() {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		if !rt.smallBodyRead {
			rt.callerStalled = true
			_ = rt.control.SetReadDeadline(past)
		}
	})
	body := make([]byte, r.ContentLength, r.ContentLength+1)
	_, err := io.ReadFull(r.Body, body)
	if err == nil {
		// To its very end: only then does the server look whether the caller has left.
		_, err = r.Body.Read(body[len(body):cap(body)])
	}
	stalled.end()
	rt.mu.Lock()
	rt.smallBodyRead = true
	stopped := rt.callerStalled
	rt.mu.Unlock()
	switch {
	case stopped:
		return &failure{kind: failRequestBody, err: errCallerStalled}
	case err != nil && err != io.EOF:
		return failureOf(r, &requestError{err, true}, false)
	}
	rt.smallBody = body
	return nil
}
