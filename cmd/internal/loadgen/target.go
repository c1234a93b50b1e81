package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// A Target is a server and the protocol to use.
type Target interface {
	// Dial returns a caller. It sends no request.
	Dial(ctx context.Context) (Caller, error)
	// Close frees the resources that callers share. The callers must be closed before.
	Close() error
}

// A Caller sends requests. It must not be used concurrently.
type Caller interface {
	// Ask sends a request for each key, pipelined if the protocol supports it, and calls answered for each response in order.
	// If it returns an error, the requests without a response have failed.
	Ask(ctx context.Context, keys []int64, answered func(Answer)) error
	Close() error
}

// A Kind is the kind of a response.
type Kind uint8

// Kinds of responses.
const (
	Failed  Kind = iota // neither allowed nor denied
	Allowed             //
	Denied              //
)

// An Answer is a response of a server.
type Answer struct {
	Kind Kind
	Code string // code of the protocol: OK, OVER_LIMIT, 200
}

// Loopback reports whether the host of u is a loopback address, or a name that resolves only to loopback addresses.
func Loopback(ctx context.Context, u *url.URL) (bool, error) {
	host := u.Hostname()
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback(), nil
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false, err
	}
	for _, a := range found {
		if !a.IP.IsLoopback() {
			return false, nil
		}
	}
	return len(found) > 0, nil
}

// reach returns an error if addr does not accept connections, so that a wrong address causes one error instead of many.
func reach(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w: is the server running, and is this its address?", err)
	}
	return c.Close()
}

var (
	ports = regexp.MustCompile(`\S+:\d+->`) // local addresses, which differ for each connection
	space = regexp.MustCompile(`\s+`)
)

// reason returns a short text of an error, equal for errors of the same kind.
func reason(err error) string {
	if timedOut(err) {
		return "no response in time"
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	text := space.ReplaceAllString(ports.ReplaceAllString(err.Error(), ""), " ")
	if r := []rune(text); len(r) > 160 {
		text = string(r[:160]) + "…"
	}
	return strings.TrimSpace(text)
}

// errLate is the error of callers that detect a timeout by an error of their protocol.
var errLate = errors.New("no response in time")

func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, errLate) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
