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

// FreeAddress returns a loopback address on which no other test listens until this test ends. Use it if a server is
// started later, is restarted, or never runs: the port of a closed listener may already be in use by another process.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return address
}

// Reserve is [FreeAddress] for processes that serve several tests. The address is reserved until release is called or
// the process ends.
//
// Systems use ports above 32,767 for outgoing connections and for listeners without a fixed port, so the port is below.
// It is also below 20,000, so that this holds for the port 10,000 above it too, which nodes of a Redis Cluster use. The
// UDP port of the same number stays bound, so that other tests see that the port is reserved.
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

// Listen listens on an address on which this process may have listened before. A child process has copies of all file
// descriptors until it executes its program, and the copy of a closed listener keeps the port in use: Listen waits for
// that.
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
