//go:build !unix

package upstream

import "net"

func aliveCheck(net.Conn) func() bool { return func() bool { return false } }

// lanes says whether connections can be checked here. Where they cannot, http.Transport does everything.
const lanes = false
