package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/rules"
)

// serveFor serves a request by a gateway whose route has a timeout of 1 s, and returns the time and cause of the end of the
// upstream's context. The upstream runs until its context is done, at most a minute.
func serveFor(t *testing.T, r *http.Request, up func(w http.ResponseWriter, r *http.Request)) (took time.Duration, cause error) {
	t.Helper()
	set := setOf(t, "rules: []")
	start := time.Now()
	g, err := gateway.New(gateway.Config{
		Rules: func() *rules.Set { return set },
		Routes: []gateway.Route{{Path: pattern(t, "/**"), Timeout: time.Second, Upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			up(w, r)
			select {
			case <-r.Context().Done():
				cause = context.Cause(r.Context())
			case <-time.After(time.Minute):
			}
			took = time.Since(start)
		})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI, r.URL.Scheme, r.URL.Host = "/", "", ""
	g.ServeHTTP(httptest.NewRecorder(), r)
	return took, cause
}

// A request times out if the upstream does not start its response in time; after the start there is no timeout.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() *http.Request { return httptest.NewRequest("GET", "http://h/", nil) }
		took, cause := serveFor(t, get(), func(http.ResponseWriter, *http.Request) {})
		if !errors.Is(cause, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("silent: %v after %v", cause, took)
		}
		took, cause = serveFor(t, get(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) })
		if !errors.Is(cause, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("only hints: %v after %v", cause, took)
		}
		took, cause = serveFor(t, get(), func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(900 * time.Millisecond)
			w.WriteHeader(http.StatusOK)
		})
		if cause != nil || took <= time.Minute {
			t.Errorf("begun: %v after %v", cause, took)
		}
	})
}

// slow is a body whose pieces arrive one by one.
type slow struct{ pieces int }

func (s *slow) Read(b []byte) (int, error) {
	if s.pieces == 0 {
		return 0, io.EOF
	}
	<-time.After(900 * time.Millisecond)
	s.pieces--
	return copy(b, "x"), nil
}

// The time to receive a request does not count towards the timeout.
func TestTimeoutBeginsWithTheLastPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := 0
		took, cause := serveFor(t, httptest.NewRequest("POST", "http://h/", &slow{10}), func(_ http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			read = len(b)
		})
		if !errors.Is(cause, context.DeadlineExceeded) || took != 10*time.Second || read != 10 {
			t.Errorf("%v after %v and %d pieces", cause, took, read)
		}
		// The response may start before the request is complete, and the timeout ends then.
		took, cause = serveFor(t, httptest.NewRequest("POST", "http://h/", &slow{10}), func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_, _ = io.ReadAll(r.Body)
		})
		if cause != nil || took <= time.Minute {
			t.Errorf("begun: %v after %v", cause, took)
		}
	})
}
