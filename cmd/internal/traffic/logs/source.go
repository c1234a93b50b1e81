package logs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

// Source is a log.
type Source struct {
	Name   string
	Reader io.Reader // lines, plain or compressed by gzip
}

// Log reads the requests of a log by time. Lines are written at the end of requests and so are not sorted by their start:
// up to maxWaiting requests are buffered and sorted.
type Log struct {
	Name       string
	Reader     *accesslog.Reader
	Formats    [2]int64 // lines by format
	Skipped    int64    // lines of the gateway that are not subject to rules: exempt requests and deliveries
	waiting    []*Entry // heap, the earliest first
	spare      []*Entry
	maxWaiting int
	read       int64
	ended      bool
}

// Entry is a request of a log.
type Entry struct {
	Record accesslog.Record
	format accesslog.Format
	Micros int64
	number int64 // of the request in its log, so that requests with equal times keep their order
}

// Window is the maximum number of buffered requests of all logs together.
const Window = 1 << 16

func openSource(s Source, most int) (*Log, error) {
	in := bufio.NewReaderSize(s.Reader, 64<<10)
	var lines io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		lines = unpacked
	}
	return &Log{Name: s.Name, Reader: accesslog.NewReader(lines), maxWaiting: max(1, most)}, nil
}

// peek returns the next request without removing it, or nil at the end.
func (s *Log) peek() (*Entry, error) {
	for !s.ended && len(s.waiting) < s.maxWaiting {
		e := s.take()
		format, err := s.Reader.Next(&e.Record)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("%s: line %d: %w", s.Name, s.Reader.Lines()+1, err)
			}
			s.ended = true
			break
		}
		// Exempt requests are not subject to rules. A delivery is not a request: the queued request has its own line.
		if e.Record.Decision == accesslog.Exempt || e.Record.Attempt > 0 {
			s.Skipped++
			s.spare = append(s.spare, e)
			continue
		}
		s.read++
		s.Formats[format]++
		e.format, e.Micros, e.number = format, e.Record.Time.UnixMicro(), s.read
		s.push(e)
	}
	if len(s.waiting) == 0 {
		return nil, nil
	}
	return s.waiting[0], nil
}

func (s *Log) take() *Entry {
	if n := len(s.spare); n > 0 {
		e := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return e
	}
	return new(Entry)
}

func (e *Entry) before(o *Entry) bool {
	return e.Micros < o.Micros || e.Micros == o.Micros && e.number < o.number
}

func (s *Log) push(e *Entry) {
	s.waiting = append(s.waiting, e)
	h := s.waiting
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// drop removes the request that peek returned.
func (s *Log) drop() {
	h := s.waiting
	last := len(h) - 1
	s.spare = append(s.spare, h[0])
	h[0] = h[last]
	h = h[:last]
	s.waiting = h
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && h[down].before(h[least]) {
				least = down
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// Merged merges logs by time.
type Merged struct {
	Logs []*Log
	at   *Log // log of the request that Next returned last
}

// OpenAll returns the merged logs of all sources.
func OpenAll(all []Source) (*Merged, error) {
	m := &Merged{}
	for _, s := range all {
		opened, err := openSource(s, Window/len(all))
		if err != nil {
			return nil, err
		}
		m.Logs = append(m.Logs, opened)
	}
	return m, nil
}

// Next returns the next request, or nil at the end. It is valid until the next call.
func (m *Merged) Next() (*Entry, error) {
	if m.at != nil {
		m.at.drop()
		m.at = nil
	}
	var first *Entry
	for _, s := range m.Logs {
		e, err := s.peek()
		if err != nil {
			return nil, err
		}
		if e != nil && (first == nil || e.Micros < first.Micros) {
			first, m.at = e, s
		}
	}
	return first, nil
}
