//go:build !unix

package upstream

import "net"

func newConnCheck(net.Conn) func() bool { return func() bool { return false } }

// canCheckConns reports whether connections can be checked here. Where they cannot, http.Transport does everything.
const canCheckConns = false
