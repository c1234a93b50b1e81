package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Problems are sent as a gRPC status to gRPC clients only.
func TestGRPCRejected(t *testing.T) {
	for _, test := range []struct {
		proto            int
		contentType      string
		status           int
		retryAfter, body string

		wantStatus              int
		grpc, message, pushback string
	}{
		{2, "application/grpc", 429, "3", `{"detail":"100 % used\nup é","retry_after_ms":2500}`, 200, "8", "100 %25 used%0Aup %C3%A9", "2500"},
		{2, "application/grpc+proto", 429, "3", `{}`, 200, "8", "Too Many Requests", "3000"},
		{2, "application/grpc;x=y", 429, "", `{"detail":"never"}`, 200, "8", "never", "-1"},
		{2, "application/grpc", 429, "99999999", "", 200, "8", "Too Many Requests", "-1"}, // exceeds 32 bits
		{2, "application/grpc", 503, "1", "{}", 200, "14", "Service Unavailable", "1000"},
		{2, "application/grpc", 401, "", "{}", 200, "16", "Unauthorized", ""},
		{2, "application/grpc", 403, "", "{}", 200, "7", "Forbidden", ""},
		{2, "application/grpc", 404, "", "{}", 200, "12", "Not Found", ""},
		{2, "application/grpc", 413, "", "{}", 200, "8", "Request Entity Too Large", ""},
		{2, "application/grpc", 400, "", "{}", 200, "13", "Bad Request", ""},
		{2, "application/grpc", 405, "", "{}", 200, "2", "Method Not Allowed", ""},
		{2, "application/grpcx", 429, "1", "{}", 429, "", "", ""},
		{2, "application/grpc-web", 429, "1", "{}", 429, "", "", ""},
		{2, "application/json", 429, "1", "{}", 429, "", "", ""},
		{1, "application/grpc", 429, "1", "{}", 429, "", "", ""},
	} {
		r := httptest.NewRequest(http.MethodPost, "/a.B/C", nil)
		r.ProtoMajor = test.proto
		r.Header.Set("Content-Type", test.contentType)
		w := httptest.NewRecorder()
		a := responseWriter{ResponseWriter: w, isGRPC: isGRPC(r)}
		a.Header().Set("Content-Type", "application/problem+json")
		if test.retryAfter != "" {
			a.Header().Set("Retry-After", test.retryAfter)
		}
		a.WriteHeader(test.status)
		if test.body != "" {
			_, _ = a.Write([]byte(test.body))
		}
		a.Flush()
		a.end(0)
		h := w.Header()
		if w.Code != test.wantStatus || h.Get("Grpc-Status") != test.grpc || h.Get("Grpc-Message") != test.message || h.Get("Grpc-Retry-Pushback-Ms") != test.pushback {
			t.Errorf("%+v: %d %v", test, w.Code, h)
		}
		if a.status != test.status || (w.Body.Len() == 0) != (test.grpc != "") || w.Flushed != (test.grpc == "") {
			t.Errorf("%+v: recorded status %d, flushed %v, body %q", test, a.status, w.Flushed, w.Body)
		}
	}
}

// Responses of an upstream are not changed.
func TestGRPCAnswered(t *testing.T) {
	w := httptest.NewRecorder()
	a := responseWriter{ResponseWriter: w, isGRPC: true}
	a.Header().Set("Content-Type", "application/grpc")
	a.WriteHeader(http.StatusOK)
	_, _ = a.Write([]byte("data"))
	a.end(0)
	if w.Code != 200 || w.Body.String() != "data" || w.Header().Get("Grpc-Status") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
