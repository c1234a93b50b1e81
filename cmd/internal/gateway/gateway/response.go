package gateway

import (
	"bufio"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/internal/cors"
	"github.com/sluiceproject/sluice/internal/problem"
)

// responseWriter is the response writer of all handlers. It records the status and the size. Write timeouts of slow clients
// are set by package upstream.
type responseWriter struct {
	http.ResponseWriter
	status         int
	bytes          int64
	startedAt      time.Time // when the status was written
	timeout        *timeout  // stopped when the response starts
	hijacked       bool
	isGRPC         bool         // the request is a gRPC call
	pendingProblem bool         // the response is a problem whose gRPC status is not yet written
	grpcStatusSent bool         // the response was a problem, sent as a gRPC status
	cors           *cors.Policy // of the route; nil: none
	allowOrigin    []string     // Access-Control-Allow-Origin; nil: the origin is not allowed
	unreadBody     *body        // HTTP/1 body that is not needed and may not have arrived; nil: it has arrived, or an upstream reads it
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// start clears the write deadline that end has set for the previous response of the HTTP/1 connection.
func (a *responseWriter) start(proto int) {
	if proto == 1 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

func (a *responseWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if a.isGRPC && a.status == 0 && status >= 400 && a.Header().Get("Content-Type") == problem.MediaType {
			a.pendingProblem = true
		}
		a.begin(status)
		a.leaveBody()
	}
	if !a.pendingProblem {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *responseWriter) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	a.leaveBody()
	if a.writeGRPCStatus(b); a.grpcStatusSent {
		return len(b), nil
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

func (a *responseWriter) begin(status int) {
	if a.status != 0 {
		return
	}
	a.status, a.startedAt = status, time.Now()
	if a.cors != nil {
		a.cors.SetHeaders(a.Header(), a.allowOrigin)
	}
	a.timeout.stop()
}

// leaveBody sets Connection: close if the request's body does not arrive soon, because net/http would otherwise wait for the
// rest of it before it sends the response.
func (a *responseWriter) leaveBody() {
	if b := a.unreadBody; b != nil {
		a.unreadBody = nil
		if !b.arrives(a.ResponseWriter) {
			a.Header().Set("Connection", "close")
		}
	}
}

// Flush implements http.Flusher.
func (a *responseWriter) Flush() { _ = a.FlushError() }

// FlushError implements the interface of http.ResponseController.
func (a *responseWriter) FlushError() error {
	a.begin(http.StatusOK)
	if a.writeGRPCStatus(nil); a.grpcStatusSent {
		return nil // the response must end with its header, or the client treats it as the start of a successful one
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker, for WebSockets.
func (a *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
		a.hijacked = true
	}
	return conn, buf, err
}

// end bounds the time in which the server sends the rest of the response to a client that does not read.
func (a *responseWriter) end(idle time.Duration) {
	a.writeGRPCStatus(nil)
	if !a.hijacked && a.status != 0 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(idle))
	}
}

// isGRPC reports whether a request is a gRPC call. gRPC clients map HTTP statuses only roughly: they treat a 429 like an
// unavailable server and retry at once.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor != 2 {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// writeGRPCStatus sends a pending problem as a gRPC status. The recorded status is that of HTTP, so that logs, metrics and
// rules that charge by status treat calls like other requests.
func (a *responseWriter) writeGRPCStatus(problem []byte) {
	if a.pendingProblem {
		a.pendingProblem, a.grpcStatusSent = false, true
		setGRPCStatus(a.Header(), a.status, problem)
		a.ResponseWriter.WriteHeader(http.StatusOK)
	}
}

// setGRPCStatus sets the headers of a problem as a gRPC status: a response of trailers only.
func setGRPCStatus(h http.Header, status int, body []byte) {
	var problem struct {
		Detail       string `json:"detail"`
		RetryAfterMS int64  `json:"retry_after_ms"`
	}
	_ = json.Unmarshal(body, &problem) // without a body the text of the status is used
	if problem.Detail == "" {
		problem.Detail = http.StatusText(status)
	}
	h.Del("Content-Length")
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(grpcStatus(status)))
	h.Set("Grpc-Message", escapeMessage(problem.Detail))
	if status == http.StatusTooManyRequests || h.Get("Retry-After") != "" {
		h.Set("Grpc-Retry-Pushback-Ms", pushback(h.Get("Retry-After"), problem.RetryAfterMS))
	}
}

// gRPC status codes.
const (
	grpcCancelled        = 1
	grpcUnknown          = 2
	grpcPermissionDenied = 7
	grpcExhausted        = 8
	grpcUnimplemented    = 12
	grpcInternal         = 13
	grpcUnavailable      = 14
	grpcUnauthenticated  = 16
)

// grpcStatus returns the gRPC status code of an HTTP status (doc/http-grpc-status-mapping.md). Other than there, statuses for
// too many and too large requests are RESOURCE_EXHAUSTED.
func grpcStatus(status int) int {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return grpcExhausted
	case http.StatusBadRequest:
		return grpcInternal
	case http.StatusUnauthorized:
		return grpcUnauthenticated
	case http.StatusForbidden:
		return grpcPermissionDenied
	case http.StatusNotFound:
		return grpcUnimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return grpcUnavailable
	case statusClientClosed:
		return grpcCancelled
	}
	return grpcUnknown
}

// pushback returns the time to retry in milliseconds for clients with a retry policy, or -1, do not retry (gRFC A6).
func pushback(retryAfter string, ms int64) string {
	if seconds, err := strconv.ParseInt(retryAfter, 10, 32); err == nil && ms <= 0 {
		ms = seconds * time.Second.Milliseconds()
	}
	if ms <= 0 || ms > math.MaxInt32 {
		return "-1"
	}
	return strconv.FormatInt(ms, 10)
}

// escapeMessage percent-encodes a text for Grpc-Message.
func escapeMessage(s string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// recorder is a response writer that stores the start of a response.
type recorder struct {
	header http.Header
	body   []byte
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = make(http.Header)
	}
	return r.header
}

func (r *recorder) WriteHeader(int) {}

// Write stores up to queue.MaxResult+1 bytes: the extra byte shows that a body is too long for a result.
func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b[:min(len(b), queue.MaxResult+1-len(r.body))]...)
	return len(b), nil
}
