// Package tcptest is a server whose every connection a test answers by itself.
package tcptest

import (
	"net"
	"testing"
)

// Serve listens on loopback until the test ends, and has every connection served, see [Accept].
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

// Accept has every connection served by a goroutine of its own, which closes it at its end, until the listener is closed.
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
