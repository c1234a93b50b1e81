// Package replyguard bounds what the servers that Sluice depends on may send, before a client library reads it.
//
// Client libraries allocate what a server announces, recurse as deep as it nests and index what it is supposed to send: a
// server that lies, or anything on the way to it, could end the process. A guarded connection follows the protocol just
// far enough to see lengths, counts and depth. What exceeds a bound never reaches the library: the connection is closed,
// and reads return an [Error].
package replyguard

import (
	"errors"
	"fmt"
)

// ErrRejected is what every [Error] is, in the sense of errors.Is.
var ErrRejected = errors.New("reply rejected")

// Error reports a reply that was not passed on.
type Error struct {
	Dependency string // what the server is: Redis, NATS
	Addr       string
	Reason     string // the bound and the value that exceeds it
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %v, connection closed: %s", e.Dependency, e.Addr, ErrRejected, e.Reason)
}

// Is reports whether target is [ErrRejected]. There is no Unwrap: go-redis unwraps errors of new connections, and would
// leave out the rest.
func (e *Error) Is(target error) bool { return target == ErrRejected }
