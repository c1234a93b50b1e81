package redisstore_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// forwarder forwards connections to a server, and on demand to another one, like a virtual IP address during a
// failover.
type forwarder struct {
	listener net.Listener
	target   atomic.Pointer[string]
	dials    atomic.Int64

	mu    sync.Mutex // guards the fields below
	conns []net.Conn
	work  sync.WaitGroup
}

func forward(t *testing.T, to string) *forwarder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: listener}
	f.target.Store(&to)
	f.work.Go(f.accept)
	t.Cleanup(func() {
		listener.Close()
		f.turn("")
		f.work.Wait()
	})
	return f
}

func (f *forwarder) URL() string { return "redis://" + f.listener.Addr().String() }

func (f *forwarder) accept() {
	for {
		in, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.dials.Add(1)
		out, err := net.Dial("tcp", *f.target.Load())
		if err != nil {
			in.Close()
			continue
		}
		f.mu.Lock()
		f.conns = append(f.conns, in, out)
		f.mu.Unlock()
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			f.work.Go(func() {
				io.Copy(pair[0], pair[1])
				pair[0].Close()
			})
		}
	}
}

// to forwards new connections to another server.
func (f *forwarder) to(target string) { f.target.Store(&target) }

// turn closes all connections and forwards new ones to another server.
func (f *forwarder) turn(to string) {
	f.to(to)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}
