package authn

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// admitAll admits all requests concurrently and counts the statuses.
func admitAll(c *Chain, from string, requests []*http.Request) map[int]int {
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for _, r := range requests {
		r.RemoteAddr = from
		all.Go(func() {
			status := http.StatusOK
			if _, refused := c.Admit(r); refused != nil {
				status = refused.Status
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	all.Wait()
	return statuses
}

// Concurrent guesses do not exceed the limit. Logins from other addresses succeed, and so do accounts that logged in
// from the same address before.
func TestParallelGuesses(t *testing.T) {
	const limit = 10
	right := fakeHash(10, "a")
	for name, guesses := range map[string]func(*methods) (m Method, good func() *http.Request, guess func(i int) *http.Request){
		"basic": func(m *methods) (Method, func() *http.Request, func(int) *http.Request) {
			return m.basic, func() *http.Request { return credentials("ada:" + right) },
				func(i int) *http.Request { return credentials(fmt.Sprint("bob:wrong-", i)) }
		},
		"keys": func(m *methods) (Method, func() *http.Request, func(int) *http.Request) {
			return m.keys, func() *http.Request { return request("X-Api-Key", "key-of-ada") },
				func(i int) *http.Request { return request("X-Api-Key", fmt.Sprint("wrong-", i)) }
		},
		"jwt": func(m *methods) (Method, func() *http.Request, func(int) *http.Request) {
			return m.jwt, func() *http.Request { return request("Authorization", "Bearer "+m.token) },
				func(i int) *http.Request {
					return request("Authorization", fmt.Sprint("Bearer ", m.token[:len(m.token)-4], 1000+i))
				}
		},
	} {
		for _, n := range []int{120, 1000} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				m := allMethods(t)
				hashes := counted(m.basic)
				method, good, guess := guesses(m)
				looked := &looks{Method: method}
				c := NewChain(ChainConfig{Methods: []Method{looked}, Attempts: attempts(t, limit)})
				const eve, elsewhere = "192.0.2.1:1", "192.0.2.2:1"
				if got := admitAll(c, eve, []*http.Request{good()}); got[200] != 1 { // a user behind the same address
					t.Fatal(got)
				}
				looked.n.Store(0)
				*hashes = nil
				var beside sync.WaitGroup
				beside.Go(func() {
					if got := admitAll(c, elsewhere, []*http.Request{good()}); got[200] != 1 {
						t.Errorf("from elsewhere: %v", got)
					}
				})
				requests := make([]*http.Request, n)
				for i := range requests {
					requests[i] = guess(i)
				}
				got := admitAll(c, eve, requests)
				beside.Wait()
				if got[401] != limit || got[401]+got[429]+got[503] != n || looked.n.Load() != limit+1 || len(*hashes) > limit+1 {
					t.Errorf("%v, %d were looked at, %d hashes: want %d", got, looked.n.Load(), len(*hashes), limit)
				}
				if got := admitAll(c, eve, []*http.Request{good()}); got[200] != 1 {
					t.Errorf("who logged in there before: %v", got)
				}
				if got := admitAll(c, eve, requests[:1]); got[429] != 1 {
					t.Errorf("another guess: %v", got)
				}
			})
		}
	}
}

// looks counts checks of credentials.
type looks struct {
	Method
	n atomic.Int64
}

func (l *looks) Authenticate(r *http.Request) (Identity, error) {
	l.n.Add(1)
	return l.Method.Authenticate(r)
}

// Concurrent right credentials from one address all succeed, however many there are and however long checks take.
func TestParallelLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := allMethods(t)
		right := fakeHash(10, "a")
		m.basic.slots = make(chan struct{}, 1000)
		m.basic.compare = func(hash, password []byte) error {
			<-time.After(50 * time.Millisecond)
			if string(hash) != string(password) {
				return bcrypt.ErrMismatchedHashAndPassword
			}
			return nil
		}
		c := NewChain(ChainConfig{Methods: []Method{m.basic}, Attempts: attempts(t, 3)})
		requests := make([]*http.Request, 500)
		for i := range requests {
			requests[i] = credentials("ada:" + right)
		}
		requests = append(requests, credentials("ada:wrong"), credentials("ada:wrong"))
		if got := admitAll(c, "192.0.2.1:1", requests); got[200] != 500 || got[401] != 2 {
			t.Errorf("got %v", got)
		}
	})
}

// Guesses at an account from the address where it logged in are limited too: by the bucket of the address and that of the account.
func TestGuessesAtNeighbour(t *testing.T) {
	m := allMethods(t)
	c := NewChain(ChainConfig{Methods: []Method{m.basic}, Attempts: attempts(t, 10)})
	const nat = "192.0.2.1:1"
	if got := admitAll(c, nat, []*http.Request{credentials("ada:" + fakeHash(10, "a"))}); got[200] != 1 {
		t.Fatal(got)
	}
	requests := make([]*http.Request, 500)
	for i := range requests {
		requests[i] = credentials(fmt.Sprint("ada:wrong-", i))
	}
	if got := admitAll(c, nat, requests); got[401] != 20 {
		t.Errorf("got %v, want 20 that were checked", got)
	}
}

// A client that leaves while it waits for other checks does not use up a charge.
func TestLeavesWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attempts(t, 1)
		ctx := t.Context()
		first, _, err := a.begin(ctx, "a", "")
		if first == nil || err != nil {
			t.Fatal(err)
		}
		if second, _, err := a.begin(ctx, "a", ""); second != nil || err != ErrBusy { // after checkWait
			t.Errorf("%v, %v", second, err)
		}
		first.end()
		third, _, err := a.begin(ctx, "a", "")
		if third == nil || err != nil {
			t.Fatal(err)
		}
		third.guess = true
		third.end()
		if fourth, wait, err := a.begin(ctx, "a", ""); fourth != nil || wait <= 0 || err != nil {
			t.Errorf("%v, %v, %v", fourth, wait, err)
		}
		if len(a.checking) > 0 {
			t.Errorf("%d buckets are left", len(a.checking))
		}
	})
}
