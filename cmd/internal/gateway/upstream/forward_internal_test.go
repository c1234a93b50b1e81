package upstream

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestResendWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := time.Now()
		<-time.After(resendWithin)
		var in, late resend
		if !in.may(sent) || in.may(sent) {
			t.Error("a request must be sent again exactly once within resendWithin")
		}
		<-time.After(1)
		if late.may(sent) {
			t.Error("a request is sent again after resendWithin")
		}
	})
}

// Each kind of failure has one reaction, within the limits of servers, attempts and retries.
func TestNexts(t *testing.T) {
	for _, c := range []struct {
		kind           failKind
		before         tries
		servers        int
		retries        int // configured maximum
		spent          bool
		again          bool
		dials, retried int // afterwards
	}{
		{kind: failDial, servers: 3, retries: 1, again: true, dials: 1},
		{kind: failDial, servers: 9, retries: 1, before: tries{dials: dialTries}, dials: dialTries},
		{kind: failDial, servers: 1, retries: 1},
		{kind: failDial, servers: 3, retries: -1},
		{kind: failDial, servers: 3, retries: 1, spent: true, again: true, dials: 1},
		{kind: failRepeatable, servers: 3, retries: 1, again: true, retried: 1},
		{kind: failRepeatable, servers: 1, retries: 1, again: true, retried: 1},
		{kind: failRepeatable, servers: 3, retries: 1, before: tries{retries: 1}, retried: 1},
		{kind: failRepeatable, servers: 3, retries: -1},
		{kind: failRepeatable, servers: 3, retries: 1, spent: true},
		{kind: failTimeout, servers: 3, retries: 1},
		{kind: failBroken, servers: 3, retries: 1},
		{kind: failRequestBody, servers: 3, retries: 1},
		{kind: failRequest, servers: 3, retries: 1},
	} {
		g := &Group{cfg: Config{Retries: c.retries}, servers: make([]*server, c.servers)}
		if !c.spent {
			g.retryBudget.fill()
		}
		got, s := c.before, &server{}
		got.group = g
		again := got.again(s, &failure{kind: c.kind})
		if again != c.again || got.dials != c.dials || got.retries != c.retried {
			t.Errorf("after %v of %+v: %v, %+v", c.kind, c, again, got)
		}
		if (len(got.tried) == 1) != again || (s.retried.Load() == 1) != again {
			t.Errorf("after %v of %+v: %d servers were tried, %d retries are counted", c.kind, c, len(got.tried), s.retried.Load())
		}
	}
}
