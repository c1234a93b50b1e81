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

// connect copies data between the caller's and the server's connection after a protocol upgrade.
func (g *Group) connect(rt *roundTrip, s *server) {
	server, ok := rt.res.Body.(io.ReadWriteCloser)
	if !ok {
		rt.res.Body.Close()
		g.log.warn("protocol upgrade failed", g, s, errors.New("upgraded connection is not writable"))
		writeProblem(rt.w, rt.r, http.StatusBadGateway, "The upstream sent no valid response.")
		return
	}
	defer server.Close()
	h := rt.w.Header()
	StripHopByHop(rt.res.Header)
	g.merge(h, rt.res.Header)
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{rt.upgrade}
	caller, buffered, err := rt.control.Hijack()
	if err != nil {
		g.log.warn("protocol upgrade failed", g, s, err)
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

// pipe copies one direction. At its end it half-closes the other connection if possible, and otherwise closes both.
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

// upgrades tracks the open upgraded connections, which http.Server does not track.
type upgrades struct {
	mu     sync.Mutex // guards the following
	open   map[*func()]struct{}
	closed bool
	empty  chan struct{} // created by end, and closed when the last connection has ended
}

// begin adds a connection; ok is false if the group is shut down.
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

// end waits until all connections have ended, and closes the rest when ctx is done.
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
