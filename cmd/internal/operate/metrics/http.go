package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// HTTP has the handler's requests counted, by status.
func (r *Requests) HTTP(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	writers := sync.Pool{New: func() any { return new(statusWriter) }}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		s := writers.Get().(*statusWriter)
		s.ResponseWriter, s.status = w, 0
		defer func() { // also of a handler that panics, which net/http answers by hanging up
			r.Done(statusText(s.status), began)
			s.ResponseWriter = nil
			writers.Put(s)
		}()
		next.ServeHTTP(s, req)
		if s.status == 0 {
			s.status = http.StatusOK // as net/http answers if nothing is said
		}
	})
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int // 0: none yet
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	if w.status < http.StatusOK { // what comes before may be followed by another
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status < http.StatusOK {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// statusText is the status in digits, without an allocation for those that are common.
func statusText(status int) string {
	switch status {
	case 0:
		return "aborted"
	case http.StatusOK:
		return "200"
	case http.StatusNoContent:
		return "204"
	case http.StatusForbidden:
		return "403"
	case http.StatusTooManyRequests:
		return "429"
	}
	return strconv.Itoa(status)
}
