//go:build unix

package upstream

import (
	"net"
	"syscall"
)

// newConnCheck returns a function that reports whether an idle connection is still open and has no unread data. It does not
// block.
func newConnCheck(conn net.Conn) func() bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return always // a connection of a test
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

// canCheckConns reports whether idle connections can be checked on this platform.
const canCheckConns = true
