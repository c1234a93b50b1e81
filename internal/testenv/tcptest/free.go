package tcptest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"
)

// FreeAddress returns an address on loopback that only this test listens on until it ends, if at all. Use it where a
// server is started later, stopped and started again, or never: the port of a listener that was closed may be anybody's
// by then.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return address
}

// Reserve is [FreeAddress] for processes that serve several tests. The address is reserved until release is called or the
// process ends.
//
// Systems give ports above 32,767 to outgoing connections and to those who ask for any, so the port is below, and below
// 20,000, so that the port 10,000 above it, which nodes of a Redis Cluster use too, is so as well. Other tests see that
// it is taken by the UDP port of the same number, which is held meanwhile.
func Reserve() (address string, release func(), err error) {
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000))
		mark, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		if c, err := net.Dial("tcp", address); err == nil { // a listener of our own would linger, see Listen
			_, _ = c.Close(), mark.Close()
			continue
		}
		return address, func() { _ = mark.Close() }, nil
	}
	return "", nil, errors.New("tcptest: none of 1,000 ports between 10,000 and 20,000 is free")
}

// Listen listens on an address on which this process may have listened before. A child process has copies of all descriptors
// until it has begun its program, and that of a listener which was closed meanwhile keeps the port: Listen waits for it.
func Listen(address string) (net.Listener, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		l, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return l, err
		}
		<-time.After(time.Millisecond)
	}
}
