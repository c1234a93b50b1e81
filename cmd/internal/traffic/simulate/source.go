package simulate

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
	Reader io.Reader // of lines, or of lines that were packed by gzip
}

// source reads a log in the order of its requests' times. A log is written when requests end and so is not in that order:
// this many requests wait until they are surely the next.
type source struct {
	name    string
	log     *accesslog.Reader
	formats [2]int64 // lines, by their format
	waiting []*entry // a heap: the earliest first
	spare   []*entry
	most    int
	read    int64
	ended   bool
}

// entry is a request of a log.
type entry struct {
	record accesslog.Record
	format accesslog.Format
	micros int64
	number int64 // of the line, so that equal times keep their order
}

// window is how many requests wait, over all logs.
const window = 1 << 16

func openSource(s Source, most int) (*source, error) {
	in := bufio.NewReaderSize(s.Reader, 64<<10)
	var lines io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		lines = unpacked
	}
	return &source{name: s.Name, log: accesslog.NewReader(lines), most: max(1, most)}, nil
}

// peek is the next request, or nil at the end.
func (s *source) peek() (*entry, error) {
	for !s.ended && len(s.waiting) < s.most {
		e := s.take()
		format, err := s.log.Next(&e.record)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("%s: line %d: %w", s.name, s.log.Lines()+1, err)
			}
			s.ended = true
			break
		}
		s.read++
		s.formats[format]++
		e.format, e.micros, e.number = format, e.record.Time.UnixMicro(), s.read
		s.push(e)
	}
	if len(s.waiting) == 0 {
		return nil, nil
	}
	return s.waiting[0], nil
}

func (s *source) take() *entry {
	if n := len(s.spare); n > 0 {
		e := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return e
	}
	return new(entry)
}

func (e *entry) before(o *entry) bool {
	return e.micros < o.micros || e.micros == o.micros && e.number < o.number
}

func (s *source) push(e *entry) {
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

// drop lets go of the request that peek returned.
func (s *source) drop() {
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

// merged is all sources in the order of time.
type merged struct {
	sources []*source
	at      *source // of the request that next returned
}

func openAll(all []Source) (*merged, error) {
	m := &merged{}
	for _, s := range all {
		opened, err := openSource(s, window/len(all))
		if err != nil {
			return nil, err
		}
		m.sources = append(m.sources, opened)
	}
	return m, nil
}

// next is the next request, good until the next call, or nil at the end.
func (m *merged) next() (*entry, error) {
	if m.at != nil {
		m.at.drop()
		m.at = nil
	}
	var first *entry
	for _, s := range m.sources {
		e, err := s.peek()
		if err != nil {
			return nil, err
		}
		if e != nil && (first == nil || e.micros < first.micros) {
			first, m.at = e, s
		}
	}
	return first, nil
}
