//go:build !unix

package upstream

import "net"

func newConnCheck(net.Conn) func() bool { return func() bool { return false } }

// canCheckConns reports whether idle connections can be checked on this platform. If not, http.Transport sends all requests.
const canCheckConns = false
