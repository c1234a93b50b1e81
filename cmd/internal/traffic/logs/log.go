package logs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

// Log reads the requests of a log by time. Lines are not sorted by the start of requests, because servers write them at
// the end: up to maxWaiting requests are buffered and sorted.
type Log struct {
	Name     string
	Requests int64
	Skipped  int64         // lines of the gateway that are not subject to rules: exempt requests and deliveries
	Hosts    int64         // requests of clients that the log names by host
	Disorder time.Duration // maximum time by which a request started before one on an earlier line

	lines     *lineReader
	first     []numbered // lines that were read to detect the format
	format    *format
	given     []column
	costField string
	parser    parser
	proxies   *proxies
	names     hostNames
	index     fieldIndex
	count     *counter

	waiting    []*Entry // heap, the earliest first
	spare      []*Entry
	maxWaiting int
	maxSize    int
	size       int // bytes of the lines in waiting
	latest     int64
	finest     int64 // smallest unit of the times read, in microseconds
	ended      bool
}

// Limits of the buffered requests of all logs together.
const (
	Window      = 1 << 16  // requests
	windowBytes = 64 << 20 // of their lines
)

// Lines that are read to detect the format, and their bytes.
const (
	detectLines = 100
	detectBytes = 256 << 10
)

// Format returns the name of the format, or "" if the log has no lines.
func (l *Log) Format() string {
	if l.format == nil {
		return ""
	}
	return l.format.name
}

// Mapping describes the fields that were found by their names or given: time=TIMESTAMP, ip=client.
func (l *Log) Mapping() string {
	if l.parser == nil || !l.format.isMapped {
		return ""
	}
	var all []string
	for _, c := range l.parser.mapping() {
		all = append(all, attributeNames[c.attribute]+"="+c.field)
	}
	return strings.Join(all, ", ")
}

// Lines returns the number of lines read.
func (l *Log) Lines() int { return l.lines.number }

// Errors returns the number of invalid lines and the first of them.
func (l *Log) Errors() (int, []Fault) { return l.lines.bad, l.lines.faults }

// Resolution returns the resolution of the times in the log: 1 s, 1 ms or 1 µs, or 0 without requests.
func (l *Log) Resolution() time.Duration { return time.Duration(l.finest) * time.Microsecond }

// open detects the format. It reads on until a format parses a line.
func (l *Log) open() error {
	for l.format == nil {
		if err := l.readFirst(); err != nil {
			return l.failed(err)
		}
		if len(l.first) == 0 {
			return nil
		}
		if l.format = detect(l.first, l.given); l.format == nil {
			for i := range l.first {
				l.lines.fault(&l.first[i], cmp.Or(l.first[i].err, errNoFormat))
			}
			l.first = l.first[:0]
		}
	}
	if l.parser != nil {
		return nil
	}
	if err := l.readFirst(); err != nil || len(l.first) == 0 {
		return l.failed(err)
	}
	var err error
	if l.parser, err = l.format.open(l.first[0].text, l.given); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}

// readFirst reads the first lines, if they were not read yet.
func (l *Log) readFirst() error {
	for size := 0; len(l.first) < detectLines && size < detectBytes && !l.ended; {
		line, err := l.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			l.ended = true
		case err != nil:
			return err
		case line.text != "":
			l.first = append(l.first, line)
			size += len(line.text)
		}
	}
	return nil
}

// failed returns an error with the name and the line of the log.
func (l *Log) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: line %d: %w", l.Name, l.lines.number+1, err)
}

// unreadable returns the error of a log without any valid line.
func (l *Log) unreadable() error {
	if l.lines.bad == 0 || l.Requests > 0 || l.Skipped > 0 {
		return nil
	}
	f := l.lines.faults[0]
	if l.format != nil {
		return fmt.Errorf("%s: no line is valid in format %s; line %d: %w", l.Name, l.format.name, f.Line, f.Err)
	}
	return fmt.Errorf("%s: no line has a supported format (tried %s): write --format NAME, or --columns time=COLUMN,… for CSV and JSON; line %d: %.60q",
		l.Name, strings.Join(FormatNames(), ", "), f.Line, f.Text)
}

// next returns the next line and its number.
func (l *Log) next() (numbered, error) {
	if len(l.first) > 0 {
		line := l.first[0]
		l.first[0] = numbered{}
		l.first = l.first[1:]
		return line, nil
	}
	return l.lines.next()
}

// fill reads requests until enough are buffered.
func (l *Log) fill() error {
	for (len(l.first) > 0 || !l.ended) && l.size < l.maxSize && len(l.waiting) < l.maxWaiting {
		line, err := l.next()
		if errors.Is(err, io.EOF) {
			l.ended = true
			return nil
		}
		if err != nil {
			return l.failed(err)
		}
		if line.text == "" {
			continue
		}
		e := l.take()
		if err := l.parse(&line, e); err != nil {
			if !errors.Is(err, errSkip) {
				l.lines.fault(&line, err)
			}
			l.spare = append(l.spare, e)
			continue
		}
		l.push(e)
	}
	return nil
}

// parse reads a line into e.
func (l *Log) parse(line *numbered, e *Entry) error {
	if line.err != nil {
		return line.err
	}
	*e = Entry{line: line.text, log: l, number: l.Requests + 1}
	if err := l.parser.parse(line.text, e); err != nil {
		return err
	}
	r := &e.Record
	if !isTime(r.Time) {
		return fmt.Errorf("year %d is out of range: 1970 to 2199", r.Time.Year())
	}
	// Exempt requests are not subject to rules. A delivery is not a request: the queued request has its own line.
	if r.Decision == accesslog.Exempt || r.Attempt > 0 {
		l.Skipped++
		return errSkip
	}
	l.setResolution(r.Time)
	if !e.isStart {
		r.Time = r.Time.Add(-r.Duration)
	}
	e.Micros = r.Time.UnixMicro()
	if e.ClientName != "" {
		l.Hosts++
		l.names.add(r.Client, e.ClientName)
	}
	l.proxies.resolve(e)
	l.Requests++
	l.Disorder = max(l.Disorder, time.Duration(l.latest-e.Micros)*time.Microsecond)
	l.latest = max(l.latest, e.Micros)
	return nil
}

func (l *Log) setResolution(t time.Time) {
	for _, unit := range [...]int64{1e6, 1e3, 1} {
		if int64(t.Nanosecond())/1e3%unit == 0 {
			if l.finest == 0 || unit < l.finest {
				l.finest = unit
			}
			return
		}
	}
}

// isTime reports whether a time is in the supported range.
func isTime(t time.Time) bool {
	year := t.Year()
	return year >= 1970 && year <= 2199
}

// peek returns the next request without removing it, or nil at the end.
func (l *Log) peek() (*Entry, error) {
	if err := l.fill(); err != nil {
		return nil, err
	}
	if len(l.waiting) == 0 {
		return nil, l.unreadable()
	}
	return l.waiting[0], nil
}
