package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// Requests over HTTP are counted by response status.
func TestHTTP(t *testing.T) {
	m := metrics.New(metrics.Config{Rules: rulesOf(t, several).Load})
	mux := http.NewServeMux()
	mux.HandleFunc("/silent", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/says", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	mux.HandleFunc("/limited", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTooManyRequests)
		w.WriteHeader(http.StatusOK) // too late
		_, _ = io.WriteString(w, "slow down")
	})
	mux.HandleFunc("/flushes", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/aborts", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(m.Requests("http", "429").HTTP(mux))
	for _, path := range []string{"/silent", "/says", "/limited", "/flushes", "/aborts", "/none", "/says"} {
		resp, err := http.Get(server.URL + path)
		if (err != nil) != (path == "/aborts") {
			t.Fatal(err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	server.Close() // waits for handlers that have responded and not yet returned
	want := map[string]float64{}
	for code, n := range map[string]float64{"200": 3, "429": 1, "202": 1, "404": 1, "aborted": 1} {
		want[`sluice_requests_total{code="`+code+`",protocol="http"}`] = n
	}
	compare(t, ours(scrape(t, m), "sluice_requests_total"), want)
	var none *metrics.Requests
	w := httptest.NewRecorder()
	none.HTTP(mux).ServeHTTP(w, httptest.NewRequest("GET", "/says", nil))
	if w.Body.String() != "hello" {
		t.Errorf("without metrics the response is %q", w.Body)
	}
}

// The number of codes per protocol is bounded. Each request beyond the bound is counted, one at the bound is not.
func TestManyCodes(t *testing.T) {
	m := metrics.New(metrics.Config{Rules: rulesOf(t, several).Load})
	was, r := bounds.MetricCodes.Count(), m.Requests("http")
	for i := range 50 {
		r.Done(strconv.Itoa(500+i), time.Now())
	}
	if n := bounds.MetricCodes.Count() - was; n != 0 {
		t.Errorf("reached %d times at the bound", n)
	}
	r.Done("999", time.Now())
	if n := bounds.MetricCodes.Count() - was; n != 1 {
		t.Errorf("reached %d times beyond the bound", n)
	}
}
