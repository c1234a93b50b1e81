package logs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine is the maximum length of a line in bytes. Longer lines are invalid.
const MaxLine = 128 << 10

// Fault is an invalid line.
type Fault struct {
	Line int // from 1
	Err  error
	Text string // beginning of the line
}

// Maximum number of invalid lines that are stored, and bytes of each.
const (
	keptFaults = 5
	keptText   = 60
)

// lineReader reads lines and stores the first invalid ones.
type lineReader struct {
	in     *bufio.Reader
	number int // lines read
	bad    int
	faults []Fault
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{in: bufio.NewReaderSize(r, MaxLine)} }

// numbered is a line with its number, or the beginning of an invalid one.
type numbered struct {
	text   string
	number int
	err    error
}

var errLong = fmt.Errorf("line longer than %d bytes", MaxLine)

// next returns the next line without its line break. Its text is the only copy: the fields of requests share its memory.
func (l *lineReader) next() (numbered, error) {
	line, err := l.in.ReadSlice('\n')
	switch {
	case err == nil:
	case errors.Is(err, io.EOF) && len(line) > 0:
	case errors.Is(err, bufio.ErrBufferFull):
		l.number++
		long := numbered{string(line[:keptText]), l.number, errLong}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return numbered{}, err
		}
		return long, nil
	default:
		return numbered{}, err
	}
	l.number++
	return numbered{text: string(bytes.TrimRight(line, "\r\n")), number: l.number}, nil
}

// fault counts an invalid line.
func (l *lineReader) fault(line *numbered, err error) {
	l.bad++
	if len(l.faults) < keptFaults {
		l.faults = append(l.faults, Fault{Line: line.number, Err: err, Text: strings.Clone(line.text[:min(len(line.text), keptText)])})
	}
}
