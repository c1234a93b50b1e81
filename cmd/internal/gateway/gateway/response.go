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

// responseWriter is the response writer of all handlers. It records the status and the size. The upstream gives up on
// clients that do not take it.
type responseWriter struct {
	http.ResponseWriter
	status         int
	bytes          int64
	startedAt      time.Time // when the status was written
	timeout        *timeout  // until it begins
	hijacked       bool
	isGRPC         bool         // the request is a gRPC call
	pendingProblem bool         // a problem whose gRPC status is not yet written
	grpcStatusSent bool         // a problem, as a gRPC status
	cors           *cors.Policy // of the route; nil: none
	allowOrigin    []string     // by cors; nil: the origin is not allowed
	unreadBody     *body        // of HTTP/1: it is not needed, and may not have arrived; nil: it has, or an upstream reads it
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// start takes back what end has set for the answer before: a connection of HTTP/1 keeps it.
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

// leaveBody lets the response begin although the request's body has not arrived: net/http would wait for the rest of it
// first, unless the connection is closed afterwards.
func (a *responseWriter) leaveBody() {
	if b := a.unreadBody; b != nil {
		a.unreadBody = nil
		if !b.arrives(a.ResponseWriter) {
			a.Header().Set("Connection", "close")
		}
	}
}

// Flush is for who asks whether a writer can.
func (a *responseWriter) Flush() { _ = a.FlushError() }

// FlushError is for http.ResponseController.
func (a *responseWriter) FlushError() error {
	a.begin(http.StatusOK)
	if a.writeGRPCStatus(nil); a.grpcStatusSent {
		return nil // the answer ends with its head, or the client takes it for the beginning of a good one
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack hands over the connection, for a WebSocket.
func (a *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
		a.hijacked = true
	}
	return conn, buf, err
}

// end bounds how long the server may take to send the last of it to a client that does not read.
func (a *responseWriter) end(idle time.Duration) {
	a.writeGRPCStatus(nil)
	if !a.hijacked && a.status != 0 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(idle))
	}
}

// isGRPC reports whether a request is a gRPC call, whose client understands an HTTP status only roughly: to it a 429 is as
// good as a server that is away, and it tries again at once.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor != 2 {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// writeGRPCStatus answers a gRPC call with a gRPC status. The recorded status is that of HTTP, so that logs, metrics
// and rules that charge by status know calls and other requests alike.
func (a *responseWriter) writeGRPCStatus(problem []byte) {
	if a.pendingProblem {
		a.pendingProblem, a.grpcStatusSent = false, true
		setGRPCStatus(a.Header(), a.status, problem)
		a.ResponseWriter.WriteHeader(http.StatusOK)
	}
}

// setGRPCStatus writes a problem in gRPC's words: an answer that is nothing but trailers.
func setGRPCStatus(h http.Header, status int, body []byte) {
	var problem struct {
		Detail       string `json:"detail"`
		RetryAfterMS int64  `json:"retry_after_ms"`
	}
	_ = json.Unmarshal(body, &problem) // without a body the status has to do
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

// Statuses of gRPC.
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

// grpcStatus is what gRPC makes of an HTTP status (doc/http-grpc-status-mapping.md), but for what is too much, which it
// has a status for.
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

// pushback tells clients with a retry policy when to try again, in milliseconds, or by a negative number not to: gRFC A6.
func pushback(retryAfter string, ms int64) string {
	if seconds, err := strconv.ParseInt(retryAfter, 10, 32); err == nil && ms <= 0 {
		ms = seconds * time.Second.Milliseconds()
	}
	if ms <= 0 || ms > math.MaxInt32 {
		return "-1"
	}
	return strconv.FormatInt(ms, 10)
}

// escapeMessage is a text as Grpc-Message has it.
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

// recorder is a response writer that keeps the beginning of an answer.
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

// Write keeps one byte more than is kept of a result, so that it is known that there was more.
func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b[:min(len(b), queue.MaxResult+1-len(r.body))]...)
	return len(b), nil
}
