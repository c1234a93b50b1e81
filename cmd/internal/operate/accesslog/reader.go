package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Reader reads the lines of a log. Each line may be in the JSON format of [Log] or in the common or combined format of
// nginx and Apache, with additional fields at its end. In the latter two, times have a resolution of one second, and nginx
// writes the end of a request.
//
// Other lines are skipped and counted.
type Reader struct {
	in     *bufio.Reader
	line   int
	errors int
	faults []Fault
}

// Fault is an invalid line.
type Fault struct {
	Line int // from 1
	Err  error
	Text string // beginning of the line
}

// Maximum number of invalid lines that a Reader stores, and bytes of each.
const (
	keptFaults = 5
	keptText   = 60
)

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, MaxLine)} }

// Next reads the next record into r and returns its format. It returns io.EOF at the end, or the error of the underlying
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
		text := string(line) // one copy: the fields share its memory
		if text[0] == '{' {
			format, err = JSON, parseJSON(text, r)
		} else {
			err = parseCombined(text, r)
		}
		if year := r.Time.Year(); err == nil && (year < 1970 || year > 2199) {
			err = fmt.Errorf("year %d is out of range: 1970 to 2199", year)
		}
		if err == nil {
			return format, nil
		}
		d.fault(line, err)
	}
}

// next reads a line without its line break. A line that is too long is recorded as invalid and returned as empty.
func (d *Reader) next() ([]byte, error) {
	line, err := d.in.ReadSlice('\n')
	switch {
	case err == nil:
	case errors.Is(err, io.EOF) && len(line) > 0:
	case errors.Is(err, bufio.ErrBufferFull):
		d.line++
		d.fault(line, fmt.Errorf("line longer than %d bytes", MaxLine))
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

// Lines returns the number of lines read.
func (d *Reader) Lines() int { return d.line }

// Errors returns the number of invalid lines and the first of them.
func (d *Reader) Errors() (int, []Fault) { return d.errors, d.faults }
