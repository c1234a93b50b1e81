//go:build unix

package upstream

import (
	"net"
	"syscall"
)

// newConnCheck returns a function that reports whether an unused connection is still open and silent, without waiting.
func newConnCheck(conn net.Conn) func() bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return always // a test's
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return always
	}
	var silent bool
	var b [1]byte
	peek := func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = err == syscall.EAGAIN
	}
	return func() bool {
		silent = false
		return raw.Control(peek) == nil && silent
	}
}

func always() bool { return true }

// canCheckConns reports whether connections can be checked here.
const canCheckConns = true
