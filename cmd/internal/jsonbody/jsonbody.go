// Package jsonbody reads the JSON bodies of requests. It bounds their size and decodes them strictly, the same way for all APIs.
package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
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

// Decode decodes one JSON value. Unknown fields are errors, because they would be ignored silently. Errors are for clients of an
// API.
func Decode(body []byte, to any) error {
	switch {
	case !utf8.Valid(body):
		return errors.New("the body is not UTF-8")
	case len(bytes.TrimSpace(body)) == 0:
		return errors.New("the body is empty: send JSON, see docs/service.md")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("the body is invalid: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON in the body")
	}
	return nil
}
