package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/redisstore"
)

// mute is a sentinel, and the primary that it names, that falls silent: it reads on and says nothing more.
type mute struct {
	url    string
	at     atomic.Pointer[string] // the command that is not answered, nor any after it on its connection; "": all are
	half   string                 // the beginning of a reply, which is all that is said to it
	silent chan struct{}          // gets one for each connection that fell silent
}

func startMute(t *testing.T, at, half string) *mute {
	t.Helper()
	m := &mute{half: half, silent: make(chan struct{}, 1000)}
	m.at.Store(&at)
	truth := &liar{often: 1 << 62} // that it lies will not be seen
	truth.addr = startFake(t, func(command []string) (string, bool) {
		switch {
		case command[0] == *m.at.Load():
			m.silent <- struct{}{}
			return m.half, false
		case strings.EqualFold(command[0], "HELLO"):
			return "%2\r\n+proto\r\n:3\r\n+version\r\n$5\r\n8.0.0\r\n", true
		}
		return truth.reply(command), true
	})
	m.url = fmt.Sprintf("redis://%[1]s?addr=%[1]s&master_set=m", truth.addr)
	return m
}

// within fails the test if something takes longer. It does not wait for what never ends.
func within(t *testing.T, most time.Duration, what string, do func()) {
	t.Helper()
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		t.Logf("%s took %v", what, time.Since(began))
	case <-time.After(most):
		t.Fatalf("%s has not ended after %v", what, most)
	}
}

// TestSilentSentinels: whenever a sentinel falls silent while a store connects, Open returns, the store tries again, and
// Close ends an attempt that waits for an answer.
func TestSilentSentinels(t *testing.T) {
	t.Parallel()
	const atOnce, late = 1500 * time.Millisecond, 5 * time.Second
	for name, c := range map[string]struct {
		at, half string
		connects bool          // the client goes on without that answer, on another connection
		closes   time.Duration // how long Close may take; of a store that is connected it lets calls end
	}{
		"hello":        {"HELLO", "", false, atOnce},
		"unsubscribe":  {"UNSUBSCRIBE", "", true, late},
		"half a reply": {"UNSUBSCRIBE", "$5\r\nabc", true, late},
		"sentinel":     {"SENTINEL", "", false, atOnce},
		"role":         {"ROLE", "", false, atOnce},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMute(t, c.at, c.half)
			var store *redisstore.Store
			within(t, 20*time.Second, "Open", func() {
				var err error
				if store, err = redisstore.Open(redisstore.Config{URL: m.url}); err != nil {
					t.Error(err)
				}
			})
			if t.Failed() {
				return
			}
			for len(m.silent) > 0 {
				<-m.silent
			}
			if err := store.Ping(t.Context()); (err == nil) != c.connects {
				t.Errorf("after Open: %v", err)
			}
			within(t, 20*time.Second, "the next attempt", func() { <-m.silent })
			within(t, c.closes, "Close", store.Close)
		})
	}
}

// TestSentinelFallsSilent: a sentinel that falls silent while the store is in use is given up and asked on a new
// connection, and Close does not wait for it.
func TestSentinelFallsSilent(t *testing.T) {
	t.Parallel()
	m := startMute(t, "", "")
	store, err := redisstore.Open(redisstore.Config{URL: m.url})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := "UNSUBSCRIBE" // only sentinels are sent that
	m.at.Store(&at)
	within(t, 30*time.Second, "asking the sentinel again", func() {
		<-m.silent
		<-m.silent
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := store.Ping(ctx); err != nil {
		t.Errorf("the primary is there, but %v", err)
	}
	within(t, 5*time.Second, "Close", store.Close)
}
