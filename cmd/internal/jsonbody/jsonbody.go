// Package jsonbody reads the JSON bodies of requests: the one place that bounds how much of a body is held, and that says
// how strictly it is read.
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

// What is wrong with a body before anything is known of what it says.
var (
	ErrTooLarge   = errors.New("the body is too large")
	ErrUnreadable = errors.New("the body cannot be read") // it ends too early, or took too long
)

// Read reads a body of at most so many bytes into the memory of buf, which may be nil, or into more if that is too small.
// The error is [ErrTooLarge] or [ErrUnreadable]; what was read until then is returned with it, so that its memory can be
// used again.
func Read(body io.Reader, buf []byte, most int) ([]byte, error) {
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
		case len(buf) > most:
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

// Decode reads one JSON value. What the value has no field for is refused, since it was meant to do something. Errors are
// for the caller of an API to read.
func Decode(body []byte, to any) error {
	switch {
	case !utf8.Valid(body):
		return errors.New("the body is not UTF-8")
	case len(bytes.TrimSpace(body)) == 0:
		return errors.New("the body is empty: send JSON, see docs/api.md")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("the body is not what is wanted: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON in the body")
	}
	return nil
}
