package upstream

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

var (
	errMethod = errors.New("its method is no word")
	errTarget = errors.New("its path or query holds blanks or control characters")
	errHost   = errors.New("its host is none")
	errField  = errors.New("a header field is malformed")
)

// appendHead writes the head of a request that has a body of so many bytes. Whatever could end a line early is an
// error: it may have been put in after the request was parsed.
func appendHead(b []byte, r *http.Request, host string, length int) ([]byte, error) {
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return b, errMethod
	}
	if r.Host != "" {
		host = r.Host
	}
	if !httpguts.ValidHostHeader(host) {
		return b, errHost
	}
	b = append(b, r.Method...)
	b = append(b, ' ')
	from := len(b)
	switch path := r.URL.EscapedPath(); {
	case path == "":
		b = append(b, '/')
	case path[0] != '/' && path != "*":
		return b, errTarget
	default:
		b = append(b, path...)
	}
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		b = append(b, '?')
		b = append(b, r.URL.RawQuery...)
	}
	for _, c := range b[from:] {
		if c <= ' ' || c == 0x7f {
			return b, errTarget
		}
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	b, err := appendFields(b, r.Header)
	if err != nil {
		return b, err
	}
	if length > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(length), 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// checkHead is for requests whose head somebody else writes: not all writers are as careful. It returns the length of the
// head in HTTP/1.
func checkHead(r *http.Request) (length int, err error) {
	for name := range r.Trailer {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidTrailerHeader(name) {
			return 0, errField
		}
	}
	buf := heads.Get().(*[]byte)
	defer heads.Put(buf)
	head, err := appendHead((*buf)[:0], r, "localhost", 0)
	return len(head), err
}

func appendFields(b []byte, h http.Header) ([]byte, error) {
	var dropped []string
	if len(h["Connection"]) > 0 {
		dropped = connectionNames(h)
	}
	for name, values := range h {
		switch name {
		case "Host", "Content-Length":
			continue
		case "Te":
			if httpguts.HeaderValuesContainsToken(values, "trailers") {
				b = append(b, "Te: trailers\r\n"...)
			}
			continue
		}
		if isHopByHop(name) || (dropped != nil && slices.Contains(dropped, name)) {
			continue
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return b, errField
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return b, errField
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, strings.Trim(v, " \t")...)
			b = append(b, "\r\n"...)
		}
	}
	return b, nil
}
