package authn

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// issuer is a transport that returns a configured JWKS without a network, so that it works in a synctest bubble.
type issuer struct {
	mu    sync.Mutex
	set   string // empty: unavailable; slow: never responds
	asked int
}

const slow = "slow"

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	i.asked++
	set := i.set
	i.mu.Unlock()
	switch set {
	case "":
		return nil, errors.New("away")
	case slow:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(set)), Header: http.Header{}, Request: r}, nil
}

func (i *issuer) say(set string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.set = set
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

// fetching returns a JWT method with the issuer. Its Run ends with the test.
func fetching(t *testing.T, i *issuer) (*JWT, *logged) {
	j := newJWT(t, JWTConfig{Algorithms: []string{"RS256"}, KeySetURL: &KeySetURL{URL: "https://user:canary@issuer.example/jwks?token=canary"}}, "")
	j.keys.(*jwksCache).client.Transport = i
	log := new(logged)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.Run(ctx, slog.New(slog.NewTextHandler(log, nil)))
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return j, log
}

func TestJWKSRotate(t *testing.T) {
	s := signers()
	first, both := keySet(rsaJWK("old", &s.rsa.PublicKey, "")), keySet(rsaJWK("old", &s.rsa.PublicKey, ""), rsaJWK("new", &s.other.PublicKey, ""))
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{}
		j, log := fetching(t, i)
		bear := func(kid string, by any) *http.Request {
			return request("Authorization", "Bearer "+sign(t, head("RS256", "kid", kid), claims("exp", time.Now().Add(24*time.Hour).Unix()), by))
		}
		ask := func(r *http.Request) string { return verdict(j.Authenticate(r)) }
		synctest.Wait()
		if got := ask(bear("old", s.rsa)); got != ErrUnavailable.Error() {
			t.Errorf("while it is away: %s", got)
		}
		<-time.After(time.Hour)
		if n := i.count(); n < 50 || n > 80 {
			t.Errorf("in an hour it is asked %d times", n)
		}
		i.say(first)
		<-time.After(2 * time.Minute)
		if got := ask(bear("old", s.rsa)); got != "ada" {
			t.Errorf("when it is back: %s", got)
		}
		before := i.count()
		i.say(both)
		if got := ask(bear("new", s.other)); got != "ada" || i.count() != before+1 {
			t.Errorf("a new key: %s, asked %d times", got, i.count()-before)
		}
		// Invented key IDs cause at most one fetch per 10 s and do not delay other tokens.
		before = i.count()
		began := time.Now()
		invented := bear("invented", s.other)
		for range 1000 {
			if got := ask(invented); got != badSignature {
				t.Fatal(got)
			}
		}
		if n := i.count() - before; n != 0 || time.Since(began) > 0 {
			t.Errorf("%d invented names have it asked %d times, in %v", 1000, n, time.Since(began))
		}
		<-time.After(fetchRest)
		ask(bear("invented", s.other))
		ask(bear("invented", s.other))
		if n := i.count() - before; n != 1 {
			t.Errorf("later they have it asked %d times", n)
		}
		// The last keys stay in use while the issuer is unavailable or its response is invalid.
		for _, bad := range []string{"", "canary", keySet()} {
			i.say(bad)
			<-time.After(10 * time.Minute)
			if got := ask(bear("new", s.other)); got != "ada" {
				t.Errorf("%q: %s", bad, got)
			}
		}
		i.say(first)
		<-time.After(10 * time.Minute)
		if got := ask(bear("new", s.other)); got != badSignature {
			t.Errorf("a key that was taken back: %s", got)
		}
		if log.count("canary") > 0 || log.count("last valid keys stay in use") == 0 || log.count("https://issuer.example/jwks") == 0 {
			t.Error("the log says too much, or too little")
		}
	})
}

// Tokens wait for keys at most fetchWait, and not after their client has left.
func TestJWKSAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := new(issuer)
		j, _ := fetching(t, i)
		synctest.Wait()
		i.say(slow)
		<-time.After(2 * fetchRest)
		r := request("Authorization", "Bearer "+sign(t, head("RS256", "kid", "x"), claims(), signers().rsa))
		began := time.Now()
		if got := verdict(j.Authenticate(r)); got != ErrUnavailable.Error() || time.Since(began) != fetchWait {
			t.Errorf("got %s after %v", got, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		_, _ = j.Authenticate(r.WithContext(ctx))
		if time.Since(began) > 0 {
			t.Errorf("who left waits for %v", time.Since(began))
		}
	})
}

// A real server, with a certificate of a private CA.
func TestJWKSOverTLS(t *testing.T) {
	s := signers()
	var answer atomic.Pointer[http.HandlerFunc]
	say := func(h http.HandlerFunc) { answer.Store(&h) }
	say(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, keySet(rsaJWK("k", &s.rsa.PublicKey, "")))
	})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	get := func(ca string) error {
		f, err := newJWKSCache(KeySetURL{URL: server.URL + "/jwks", CA: ca})
		if err != nil {
			t.Fatal(err)
		}
		defer f.client.CloseIdleConnections()
		return f.fetch(t.Context(), slog.New(slog.DiscardHandler))
	}
	if err := get(ca); err != nil {
		t.Error(err)
	}
	if err := get(""); err == nil {
		t.Error("an unverified certificate is accepted")
	}
	for want, h := range map[string]http.HandlerFunc{
		"redirects are not followed": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
		"404":                        http.NotFound,
		"bytes": func(w http.ResponseWriter, _ *http.Request) {
			for range 300 {
				_, _ = w.Write(make([]byte, 1024))
			}
		},
	} {
		say(h)
		if err := get(ca); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
