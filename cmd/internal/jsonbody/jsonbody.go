// Package jsonbody reads the JSON bodies of requests. It bounds their size and decodes them strictly, the same way for all APIs.
package jsonbody

import (
	"errors"
	"io"
	"net/http"
)

// Errors of reading a body, before it is decoded.
var (
	ErrTooLarge   = errors.New("the body is too large")
	ErrUnreadable = errors.New("the body cannot be read") // truncated or too slow
)

// Read reads a body of at most maximum bytes into buf, which may be nil, or into a new buffer if buf is too small. Its error is
// [ErrTooLarge] or [ErrUnreadable]; the partly filled buffer is returned too, so that it can be reused.
func Read(body io.Reader, buf []byte, maximum int) ([]byte, error) {
	if buf == nil {
		buf = make([]byte, 0, 2<<10)
	}
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > maximum:
			return buf, ErrTooLarge
		case err == nil:
		case errors.Is(err, io.EOF):
			return buf, nil
		case errors.As(err, new(*http.MaxBytesError)):
			return buf, ErrTooLarge
		default:
			return buf, ErrUnreadable
		}
	}
}
