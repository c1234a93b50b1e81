package gateway

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// isGRPC reports whether a request is a gRPC call, whose client understands an HTTP status only roughly: to it a 429 is as
// good as a server that is away, and it tries again at once.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor != 2 {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
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

// setStatus writes a problem in gRPC's words: an answer that is nothing but trailers.
func setStatus(h http.Header, status int, body []byte) {
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
