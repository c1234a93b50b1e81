package logs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// parser reads the lines of one log.
type parser interface {
	// parse reads a line into e, whose Record is empty. Record.Time is the time in the line. It returns errSkip for lines
	// that are not requests.
	parse(line string, e *Entry) error
	// fields calls add for each field of a line that parse has read.
	fields(line string, add func(name, value string))
	// mapping returns the fields that were found by their names or given by Options.Columns.
	mapping() []column
}

// format is a format of logs.
type format struct {
	name string
	// open returns the parser of a log with the given first line.
	open func(first string, given []column) (parser, error)
	// marks are texts of which the lines contain one, each list for itself, if the format is detected.
	marks [][]string
	// isMapped reports whether Options.Columns applies to the format.
	isMapped bool
}

// formats are all formats. If several parse equally many lines, the first of them is used.
var formats = []format{
	{name: "sluice", open: always(sluiceParser{}), marks: [][]string{{`"duration_seconds":`, `"decision":`}}},
	{name: "caddy", open: preset(caddyFields), marks: [][]string{{`"request":{`, `"request": {`}, {`"remote_ip"`, `"remote_addr"`}}},
	{name: "traefik-json", open: preset(traefikFields), marks: [][]string{{`"ClientHost"`, `"ClientAddr"`}, {`"RequestMethod"`, `"RequestPath"`}}},
	{name: "envoy-json", open: preset(envoyFields), marks: [][]string{{`"start_time"`}, {`"response_code"`}}},
	{name: "nginx-json", open: preset(nginxFields), marks: [][]string{{`"remote_addr"`}, {`"request"`, `"request_uri"`, `"uri"`, `"request_method"`}}},
	{name: "json", open: func(_ string, given []column) (parser, error) { return newJSON(given), nil }, isMapped: true},
	{name: "alb", open: always(albParser)},
	{name: "envoy", open: always(envoyParser)},
	{name: "istio", open: always(istioParser)},
	{name: "traefik", open: always(combinedParser{kindTraefik})},
	{name: "common", open: always(combinedParser{kindCommon})},
	{name: "combined", open: always(combinedParser{kindCombined})},
	{name: "csv", open: func(first string, given []column) (parser, error) { return newCSV(first, given) }, isMapped: true},
}

func always(p parser) func(string, []column) (parser, error) {
	return func(string, []column) (parser, error) { return p, nil }
}

func preset(fields map[attribute]string) func(string, []column) (parser, error) {
	return func(string, []column) (parser, error) { return newPreset(fields), nil }
}

// FormatNames returns the names of all formats.
func FormatNames() (all []string) {
	for i := range formats {
		all = append(all, formats[i].name)
	}
	return all
}

// isMarked reports whether a line contains the marks of the format.
func (f *format) isMarked(line string) bool {
	for _, any := range f.marks {
		if !slices.ContainsFunc(any, func(mark string) bool { return strings.Contains(line, mark) }) {
			return false
		}
	}
	return true
}

// errNoFormat is the error of a line that no format parses.
var errNoFormat = errors.New("no supported format")

// detect returns the format of the lines, or nil if none parses any: the first one with marks that parses at least half of
// them, else the first of those that parse most. So JSON of a known server is not read as any JSON because of a few
// invalid lines.
func detect(lines []numbered, given []column) (best *format) {
	most := 0
	for i := range formats {
		f := &formats[i]
		if len(given) > 0 && !f.isMapped {
			continue
		}
		n := f.parsed(lines, given)
		if f.marks != nil && 2*n >= len(lines) {
			return f
		}
		if n > most {
			best, most = f, n
		}
	}
	return best
}

// parsed returns the number of lines that a format parses.
func (f *format) parsed(lines []numbered, given []column) (n int) {
	p, err := f.open(lines[0].text, given)
	if err != nil {
		return 0
	}
	if csv, ok := p.(*csvParser); ok && len(csv.names) < 2 && len(given) == 0 {
		return 0 // any text is a column
	}
	for i := range lines {
		var e Entry
		if line := lines[i].text; lines[i].err == nil && f.isMarked(line) && p.parse(line, &e) == nil && isTime(e.Record.Time) {
			n++
		}
	}
	return n
}

// named returns the format with a name.
func named(name string, given []column) (*format, error) {
	i := slices.IndexFunc(formats, func(f format) bool { return f.name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("format %q is unknown: use one of %s", name, strings.Join(FormatNames(), ", "))
	case len(given) > 0 && !formats[i].isMapped:
		return nil, fmt.Errorf("columns: format %s has fixed fields: use --columns with --format csv or json", name)
	}
	return &formats[i], nil
}
