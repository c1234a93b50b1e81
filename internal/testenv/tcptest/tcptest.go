// Package tcptest serves TCP connections with a test's own function.
package tcptest

import (
	"net"
	"testing"
)

// Serve listens on loopback until the test ends, and serves every connection, see [Accept].
func Serve(t testing.TB, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go Accept(l, serve)
	return l.Addr().String()
}

// Accept runs serve in a new goroutine for every connection until the listener is closed. The connection is closed when
// serve returns.
func Accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}
