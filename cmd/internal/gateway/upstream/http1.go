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

// smallBody is the largest body that is read before a connection is used for it: no slow caller then holds up a server,
// and one write sends everything.
const smallBody = 16 << 10

var heads = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// isPlain says whether a request needs nothing that only http.Transport can do.
func isPlain(r *http.Request) bool {
	return r.ContentLength >= 0 && r.ContentLength <= smallBody && len(r.Trailer) == 0 && len(r.Header["Expect"]) == 0
}

// overLane sends the request on a connection of the lane and reads the head of the answer.
func (x *exchange) overLane(s *server) *failure {
	buf := heads.Get().(*[]byte)
	defer heads.Put(buf)
	head, err := appendHead((*buf)[:0], x.r, s.url.Host, len(x.small))
	if err != nil {
		return &failure{kind: failRequest, err: err}
	}
	head = append(head, x.small...)
	if cap(head) <= 64<<10 {
		*buf = head
	}
	ctx := x.r.Context()
	for fresh := false; ; fresh = true {
		c, err := s.lane.get(ctx, fresh)
		if err != nil {
			return failureOf(x.r, err, false)
		}
		x.mu.Lock()
		x.line = c
		x.mu.Unlock()
		x.stop = context.AfterFunc(ctx, c.cut)
		sent := time.Now()
		res, err := x.ask(c, head, s.group.cfg.Timeouts.Header)
		if err == nil {
			x.res = res
			x.expectBody(c)
			return nil
		}
		answered, reused := c.use.got > 0, c.use.reused
		x.release(false)
		f := failureOf(x.r, err, answered)
		x.excuse(f, len(head)-len(x.small))
		if fresh || !reused || !f.repeatable || ctx.Err() != nil || !x.resend.may(sent) {
			return f
		}
		// The server has closed a connection that nobody used, as it may at any time, while this request was on its way.
		// That says nothing against the server.
	}
}

// ask writes a request and reads the head of its answer.
func (x *exchange) ask(c *line, request []byte, within time.Duration) (*http.Response, error) {
	c.use.most = maxHeader
	_ = c.SetDeadline(time.Now().Add(within)) // for writing too: a server that does not read takes only so much
	if _, err := c.Conn.Write(request); err != nil {
		return nil, err
	}
	for {
		res, err := http.ReadResponse(c.in, x.r)
		if err != nil {
			return nil, noEOF(err)
		}
		if err := x.checkStatus(res); err != nil {
			return nil, err
		}
		if res.StatusCode >= 200 {
			c.use.most = math.MaxInt64
			return res, nil
		}
		if ok, _ := x.informs(res.StatusCode); ok { // checkStatus has seen to the error
			x.inform(x.turn, res.StatusCode, textproto.MIMEHeader(res.Header))
		}
	}
}

// expectBody watches over an answer's body, unless all of it has come with the head.
func (x *exchange) expectBody(c *line) {
	res := x.res
	if res.ContentLength >= 0 && int64(c.in.Buffered()) >= res.ContentLength || res.Body == http.NoBody {
		return
	}
	_ = c.SetDeadline(time.Time{}) // it was for the head
	x.touch()
}

// noEOF makes an end that came too early look like one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readSmall reads the body of a request for the lane, with a watch over callers that stop sending.
func (x *exchange) readSmall() *failure {
	r := x.r
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	stalled := after(x.idle, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if !x.read {
			x.stalled = true
			_ = x.control.SetReadDeadline(past)
		}
	})
	body := make([]byte, r.ContentLength, r.ContentLength+1)
	_, err := io.ReadFull(r.Body, body)
	if err == nil {
		// To its very end: only then does the server look whether the caller has left.
		_, err = r.Body.Read(body[len(body):cap(body)])
	}
	stalled.end()
	x.mu.Lock()
	x.read = true
	stopped := x.stalled
	x.mu.Unlock()
	switch {
	case stopped:
		return &failure{kind: failStalled, err: errStalled}
	case err != nil && err != io.EOF:
		return failureOf(r, &requestError{err, true}, false)
	}
	x.small = body
	return nil
}
