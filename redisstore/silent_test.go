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

// mute is a sentinel, and the primary that it names, that stops replying: it continues to read and sends nothing more.
type mute struct {
	url    string
	at     atomic.Pointer[string] // the command from which on its connection gets no reply; "": none
	half   string                 // the beginning of a reply, sent to that command
	silent chan struct{}          // receives a message for each connection that stops replying
}

func startMute(t *testing.T, at, half string) *mute {
	t.Helper()
	m := &mute{half: half, silent: make(chan struct{}, 1000)}
	m.at.Store(&at)
	truth := &liar{often: 1 << 62} // never sends a malformed reply
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

// within fails the test if do takes longer than most. It does not wait for do then.
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
		t.Fatalf("%s has not returned after %v", what, most)
	}
}

// TestSilentSentinels checks that when a sentinel stops replying at any point while a store connects, Open returns, the
// store tries again, and Close ends a pending attempt.
func TestSilentSentinels(t *testing.T) {
	t.Parallel()
	const atOnce, late = 1500 * time.Millisecond, 5 * time.Second
	for name, c := range map[string]struct {
		at, half string
		connects bool          // the client continues without that reply, on another connection
		closes   time.Duration // maximum duration of Close, which waits for calls if the store is connected
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
				t.Errorf("after Open: error %v", err)
			}
			within(t, 20*time.Second, "the next attempt", func() { <-m.silent })
			within(t, c.closes, "Close", store.Close)
		})
	}
}

// TestSentinelFallsSilent checks that a sentinel that stops replying while the store is in use is queried on a new
// connection, and that Close does not wait for it.
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
	at := "UNSUBSCRIBE" // sent to sentinels only
	m.at.Store(&at)
	within(t, 30*time.Second, "querying the sentinel again", func() {
		<-m.silent
		<-m.silent
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := store.Ping(ctx); err != nil {
		t.Errorf("the primary runs, but error %v", err)
	}
	within(t, 5*time.Second, "Close", store.Close)
}
