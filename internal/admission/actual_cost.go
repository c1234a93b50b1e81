package admission

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/buffers"
	"github.com/sluiceproject/sluice/rules"
)

// costSource is a place in the response from which the actual cost is read.
type costSource struct {
	by     *rules.ActualCost
	path   []string // path of the JSON field; nil for a header
	amount int64
	found  bool
}

// maxCostBody is the maximum size in bytes of a buffered response body or, in a stream, of a line. Longer ones are not
// parsed. The memory comes from [buffers.Process]; a response for which there is none is not parsed either.
const maxCostBody = 1 << 20

// costReader reads the actual cost from a response while it is sent, without delaying it.
type costReader struct {
	sources []costSource
	fields  bool // a source is a field of the body
	client  netip.Addr

	body    func([]byte) // is called with the parts of the body; nil: the body is not read
	lines   bool         // the body is a stream of lines
	gzip    bool
	buffer  buffers.Buffer // the body, or the current line
	tooLong bool           // the body or line is too long, or there was no memory for it
}

func (l *costReader) want(by *rules.ActualCost) {
	r := costSource{by: by}
	if by.JSON != "" {
		r.path, l.fields = strings.Split(by.JSON, "."), true
		l.buffer = buffers.Process.Buffer(l.client, maxCostBody)
	}
	l.sources = append(l.sources, r)
}

// head reads the headers of the response before they are sent.
func (l *costReader) head(h http.Header) {
	l.header(h, "")
	if !l.fields {
		return
	}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch kind {
	case "text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq":
		l.lines = true
	default:
		if kind != "" && !strings.HasSuffix(kind, "json") { // not JSON, such as a download: not buffered
			return
		}
	}
	switch encoding := h.Get("Content-Encoding"); {
	case encoding == "" || strings.EqualFold(encoding, "identity"):
		l.body = l.keep
		if l.lines {
			l.body = l.split
		}
	case strings.EqualFold(encoding, "gzip"):
		l.gzip, l.body = true, l.keep
	}
}

// header reads headers or, with http.TrailerPrefix, trailers.
func (l *costReader) header(h http.Header, prefix string) {
	for i := range l.sources {
		r := &l.sources[i]
		if r.by.Header == "" {
			continue
		}
		name := http.CanonicalHeaderKey(prefix + r.by.Header)
		if prefix != "" {
			name = prefix + http.CanonicalHeaderKey(r.by.Header)
		}
		values := h[name]
		if len(values) == 0 {
			continue
		}
		if amount, ok := parseCost(values[len(values)-1]); ok {
			r.amount, r.found = amount, true
		}
	}
	for i := range l.sources { // two rules may read one header
		if by := l.sources[i].by; by.StripHeader {
			delete(h, http.CanonicalHeaderKey(by.Header))
			delete(h, http.TrailerPrefix+http.CanonicalHeaderKey(by.Header))
		}
	}
}

// keep appends to the buffer.
func (l *costReader) keep(b []byte) {
	if l.tooLong {
		return
	}
	if err := l.buffer.Append(b); err != nil {
		if errors.Is(err, buffers.ErrTooLarge) {
			bounds.SettledBody.Reached()
		}
		l.tooLong = true
		l.buffer.Free()
	}
}

// split parses the lines of a body. A line that is too long is skipped.
func (l *costReader) split(b []byte) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			l.keep(b)
			return
		}
		l.keep(b[:i])
		l.line()
		b = b[i+1:]
	}
}

func (l *costReader) line() {
	if !l.tooLong {
		line := bytes.TrimPrefix(l.buffer.Bytes(), []byte("data:"))
		l.find(bytes.Trim(line, "\x1e \t\r")) // a record of json-seq starts with RS
	}
	l.buffer.Reset()
	l.tooLong = false
}

// find reads the cost fields of a JSON object.
func (l *costReader) find(object []byte) {
	for i := range l.sources {
		r := &l.sources[i]
		if len(r.path) == 0 || !bytes.Contains(object, []byte(r.path[len(r.path)-1])) {
			continue
		}
		if amount, ok := field(object, r.path); ok {
			r.amount, r.found = amount, true
		}
	}
}

func field(object []byte, path []string) (int64, bool) {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(object, &fields) != nil {
			return 0, false
		}
		object = fields[name]
	}
	return parseCost(string(object))
}

const (
	// maxUnpacked is the maximum size of a response after decompression.
	maxUnpacked = 16 << 20
	// inflater is the memory that decompression needs, in bytes.
	inflater = 80 << 10
)

// end reads the complete body and the trailers, and frees the buffer.
func (l *costReader) end(h http.Header) {
	defer l.buffer.Free()
	l.header(h, "")
	l.header(h, http.TrailerPrefix)
	switch {
	case l.body == nil || l.tooLong:
	case l.gzip:
		l.unpack()
	case l.lines:
		l.line()
	default:
		l.find(l.buffer.Bytes())
	}
}

func (l *costReader) unpack() {
	packed := l.buffer
	defer packed.Free()
	l.buffer = buffers.Process.Buffer(l.client, maxCostBody)
	if !packed.Reserve(inflater) {
		return
	}
	r, err := gzip.NewReader(bytes.NewReader(packed.Bytes()))
	if err != nil {
		return
	}
	l.gzip = false
	take := l.keep
	if l.lines {
		take = l.split
	}
	buf := make([]byte, 32<<10)
	for whole := io.LimitReader(r, maxUnpacked); err == nil && (l.lines || !l.tooLong); {
		var n int
		n, err = whole.Read(buf)
		take(buf[:n])
	}
	switch {
	case l.lines: // the received part of a truncated stream counts
		l.line()
	case err == io.EOF && !l.tooLong:
		l.find(l.buffer.Bytes())
	}
}

// parseCost parses a cost in a response: a number, which may be in quotes and have a fraction, which is rounded up. The
// result is clamped to 0 and [sluice.MaxCost].
func parseCost(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = strings.TrimSpace(text[1 : n-1])
	}
	f, err := strconv.ParseFloat(text, 64)
	if math.IsNaN(f) || err != nil && !math.IsInf(f, 0) || !strings.ContainsAny(text, "0123456789") {
		return 0, false
	}
	if f > sluice.MaxCost {
		bounds.SettledCost.Reached()
	}
	return int64(math.Ceil(min(max(f, 0), sluice.MaxCost))), true
}
