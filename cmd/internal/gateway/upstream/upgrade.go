package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// connect joins the caller's connection and the server's, once both have agreed to speak something else.
func (g *Group) connect(rt *roundTrip, s *server) {
	server, ok := rt.res.Body.(io.ReadWriteCloser)
	if !ok {
		rt.res.Body.Close()
		g.log.warn("an upgraded connection cannot be used", g, s, errors.New("it cannot be written to"))
		answer(rt.w, http.StatusBadGateway, "The server behind this gateway did not answer properly.")
		return
	}
	defer server.Close()
	h := rt.w.Header()
	StripHopByHop(rt.res.Header)
	g.merge(h, rt.res.Header)
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{rt.upgrade}
	caller, buffered, err := rt.control.Hijack()
	if err != nil {
		g.log.warn("an upgraded connection cannot be used", g, s, err)
		panic(http.ErrAbortHandler)
	}
	defer caller.Close()
	_ = caller.SetDeadline(time.Time{})
	both := func() { caller.Close(); server.Close() }
	done, ok := g.upgrades.begin(both)
	if !ok {
		return
	}
	defer done()
	s.upgraded.Add(1)
	defer s.upgraded.Add(-1)

	head := http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: h}
	if head.Write(buffered) != nil || buffered.Flush() != nil {
		return
	}
	idle := g.cfg.Timeouts.Upgrade
	timer := after(idle, both)
	defer timer.end()
	moved := func() { timer.Reset(idle) }
	var all sync.WaitGroup
	all.Go(func() { pipe(server, buffered.Reader, moved, both) })
	all.Go(func() { pipe(caller, server, moved, both) })
	all.Wait()
}

// pipe copies one direction. Its end is handed on where that is possible without ending the other direction.
func pipe(to io.Writer, from io.Reader, moved, fail func()) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			moved()
			if _, err := to.Write(buf[:n]); err != nil {
				fail()
				return
			}
		}
		if err == nil {
			continue
		}
		half, ok := to.(interface{ CloseWrite() error })
		if !ok || !errors.Is(err, io.EOF) || half.CloseWrite() != nil {
			fail()
		}
		return
	}
}

var _ interface{ CloseWrite() error } = (*net.TCPConn)(nil)

// upgrades are the connections that became something else, which no http.Server knows of any more.
type upgrades struct {
	mu     sync.Mutex // guards the following
	open   map[*func()]struct{}
	closed bool
	empty  chan struct{} // closed when the last has ended, once end waits
}

// begin adds a connection; ok is false if it is too late for that.
func (u *upgrades) begin(end func()) (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, false
	}
	if u.open == nil {
		u.open = map[*func()]struct{}{}
	}
	key := &end
	u.open[key] = struct{}{}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.open, key)
		if len(u.open) == 0 && u.empty != nil {
			close(u.empty)
			u.empty = nil
		}
	}, true
}

// end waits until all have ended, and ends the rest when the context does.
func (u *upgrades) end(ctx context.Context) error {
	u.mu.Lock()
	u.closed = true
	if len(u.open) == 0 {
		u.mu.Unlock()
		return nil
	}
	if u.empty == nil {
		u.empty = make(chan struct{})
	}
	empty := u.empty
	u.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	u.mu.Lock()
	for end := range u.open {
		(*end)()
	}
	u.mu.Unlock()
	<-empty
	return ctx.Err()
}
