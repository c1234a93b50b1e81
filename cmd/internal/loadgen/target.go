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

// A Target is a server and how it is asked.
type Target interface {
	// Dial returns a caller. It asks for nothing yet.
	Dial(ctx context.Context) (Caller, error)
	// Close ends what callers share. They are closed before.
	Close() error
}

// A Caller asks, for one goroutine at a time.
type Caller interface {
	// Ask asks about keys, all at once, and calls answered for each in order as the answers come. Those that have none
	// when it returns failed for the reason it returns.
	Ask(ctx context.Context, keys []int64, answered func(Answer)) error
	Close() error
}

// A Kind is what became of a request.
type Kind uint8

// Kinds of answers.
const (
	Failed  Kind = iota // neither allowed nor denied
	Allowed             //
	Denied              //
)

// An Answer is what a server said.
type Answer struct {
	Kind Kind
	Code string // in the protocol's words: OK, OVER_LIMIT, 200
}

// Loopback tells whether a target's address leads nowhere but to this machine. A name must resolve to such addresses alone.
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

// reach makes sure that something listens, so that a wrong address is one message and not a million errors.
func reach(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w: is the server running, and is this its address?", err)
	}
	return c.Close()
}

var (
	ports = regexp.MustCompile(`\S+:\d+->`) // the caller's own, which differ each time
	space = regexp.MustCompile(`\s+`)
)

// reason is an error in few words, the same for errors of one kind.
func reason(err error) string {
	if timedOut(err) {
		return "no answer in time"
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

// errLate is the error of a caller that knows its protocol's own way to say that time is up.
var errLate = errors.New("no answer in time")

func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, errLate) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
