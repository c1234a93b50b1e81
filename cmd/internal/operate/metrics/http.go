package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// HTTP returns a handler that counts the requests of next by status. A nil r returns next.
func (r *Requests) HTTP(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	writers := sync.Pool{New: func() any { return new(statusWriter) }}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		s := writers.Get().(*statusWriter)
		s.ResponseWriter, s.status = w, 0
		defer func() { // also if the handler panics: net/http then closes the connection
			r.Done(statusText(s.status), began)
			s.ResponseWriter = nil
			writers.Put(s)
		}()
		next.ServeHTTP(s, req)
		if s.status == 0 {
			s.status = http.StatusOK // the status that net/http sends by default
		}
	})
}

// statusWriter records the status of the response.
type statusWriter struct {
	http.ResponseWriter
	status int // 0: not written yet
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	if w.status < http.StatusOK { // an informational status is followed by another one
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

// statusText returns the status in digits. Common ones do not allocate.
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
