package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Reader reads the lines of a log, each in whichever format it is: what [Log] writes, or the common or combined format of
// nginx and Apache, with whatever a server adds behind it. In those, times have a resolution of one second, and nginx
// writes when a request ended.
//
// Lines that are none of these are passed over and counted.
type Reader struct {
	in     *bufio.Reader
	line   int
	errors int
	faults []Fault
}

// Fault is a line that could not be read.
type Fault struct {
	Line int // counted from 1
	Err  error
	Text string // its beginning
}

// A reader keeps this many faults, and this many bytes of a line that has one.
const (
	keptFaults = 5
	keptText   = 60
)

// NewReader returns a reader.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, MaxLine)} }

// Next reads the next record into r and tells which format it had. The error is io.EOF at the end, or that of the log's
// reader.
func (d *Reader) Next(r *Record) (Format, error) {
	for {
		line, err := d.next()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			continue
		}
		*r = Record{}
		format := Combined
		text := string(line) // once: fields are parts of it
		if text[0] == '{' {
			format, err = JSON, parseJSON(text, r)
		} else {
			err = parseCombined(text, r)
		}
		if year := r.Time.Year(); err == nil && (year < 1970 || year > 2199) {
			err = fmt.Errorf("its year is %d", year)
		}
		if err == nil {
			return format, nil
		}
		d.fault(line, err)
	}
}

// next reads a line without its end. One that is too long is a fault and read as an empty one.
func (d *Reader) next() ([]byte, error) {
	line, err := d.in.ReadSlice('\n')
	switch {
	case err == nil:
	case errors.Is(err, io.EOF) && len(line) > 0:
	case errors.Is(err, bufio.ErrBufferFull):
		d.line++
		d.fault(line, fmt.Errorf("it is longer than %d bytes", MaxLine))
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = d.in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, nil
	default:
		return nil, err
	}
	d.line++
	return bytes.TrimRight(line, "\r\n"), nil
}

func (d *Reader) fault(line []byte, err error) {
	d.errors++
	if len(d.faults) < keptFaults {
		d.faults = append(d.faults, Fault{Line: d.line, Err: err, Text: string(line[:min(len(line), keptText)])})
	}
}

// Lines is how many lines were read.
func (d *Reader) Lines() int { return d.line }

// Errors is how many lines could not be read, and the first of them.
func (d *Reader) Errors() (int, []Fault) { return d.errors, d.faults }
