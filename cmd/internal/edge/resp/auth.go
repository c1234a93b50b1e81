package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/netip"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	wrongPassword = "WRONGPASS invalid username-password pair or user is disabled."
	tooMany       = "ERR too many failed attempts: try again later"
)

// commandAuth handles AUTH [user] password.
func (c *conn) commandAuth(args [][]byte) {
	user, password := []byte("default"), []byte(nil)
	switch len(args) {
	case 2:
		password = args[1]
		if c.server.password == nil {
			c.fail("ERR AUTH <password> called without any password configured for the default user. " +
				"Are you sure your configuration is correct?")
			return
		}
	case 3:
		user, password = args[1], args[2]
	default:
		c.fail("ERR wrong number of arguments for 'auth' command")
		return
	}
	if fault := c.authenticate(user, password); fault != "" {
		c.fail(fault)
		return
	}
	c.simple("OK")
}

// authenticate marks the connection as authenticated, or returns the error reply. It takes the same time for a wrong user and
// a wrong password. Each attempt is charged before the reply, so that concurrent attempts cannot exceed the limit, and
// refunded if the password was right. Attempts run one at a time, so that concurrent right passwords cannot exhaust the
// limit for each other.
func (c *conn) authenticate(user, password []byte) (fault string) {
	s := c.server
	if s.password == nil {
		if string(user) != "default" {
			return wrongPassword
		}
		return ""
	}
	want, given := s.password(), sha256.Sum256(password)
	right := subtle.ConstantTimeCompare(want[:], given[:]) & subtle.ConstantTimeCompare(user, []byte("default"))
	if s.attempts != nil && !s.attempt(c.peer, right) {
		c.last = true
		bounds.WrongAttempts.Reached()
		return tooMany
	}
	if right == 0 {
		s.log.Warn("RESP authentication failed", "client", c.peer)
		return wrongPassword
	}
	c.authenticated = true
	return ""
}

// attempt charges an address for an attempt and reports whether it is within the limit. It refunds the charge if right is 1.
func (s *Server) attempt(peer string, right int) bool {
	s.attempting.Lock()
	defer s.attempting.Unlock()
	take := sluice.Take{Rule: s.attempts.Rules()[0], Key: peer, Cost: 1}
	var charged [1]sluice.Decision
	allowed, err := s.attempts.Decide(s.ctx, []sluice.Take{take}, charged[:])
	if err != nil || !allowed {
		return false
	}
	take.Cost, take.Receipt = -int64(right), charged[0].Receipt*int64(right) // if right is 0, a take of cost 0, which takes the same time
	_, _ = s.attempts.Decide(s.ctx, []sluice.Take{take}, charged[:])
	return true
}

// peerOf returns the key of attempts: the IP address, for IPv6 the /64 prefix, which one subscriber has at least.
func peerOf(c net.Conn) string {
	addr := c.RemoteAddr()
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.Network()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if prefix, err := ip.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
}
