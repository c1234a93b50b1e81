// Package replyguard bounds the replies of the servers that Sluice depends on, before a client library reads them.
//
// Client libraries allocate as much as a server announces, recurse as deep as it nests, and index elements that it is
// supposed to send. A faulty server, or anything between it and the client, could crash the process. A guarded
// connection parses the protocol just far enough to find lengths, counts and depth. A reply that exceeds a bound never
// reaches the library: the connection is closed, and reads return an [Error].
package replyguard

import (
	"errors"
	"fmt"
)

// ErrRejected matches every [Error] in errors.Is.
var ErrRejected = errors.New("reply rejected")

// Error reports a reply that was rejected.
type Error struct {
	Dependency string // kind of the server: Redis, NATS
	Addr       string
	Reason     string // the bound and the value that exceeds it
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %v, connection closed: %s", e.Dependency, e.Addr, ErrRejected, e.Reason)
}

// Is reports whether target is [ErrRejected]. There is no Unwrap, because go-redis unwraps errors of new connections
// and would drop the rest.
func (e *Error) Is(target error) bool { return target == ErrRejected }
