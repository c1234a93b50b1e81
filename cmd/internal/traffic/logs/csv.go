package logs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// csvParser reads lines of columns. The first line names them, unless columns are given by number. A value in quotes
// may contain the separator, but no line break.
type csvParser struct {
	separator byte
	names     []string
	header    string
	columns   []column // by number: field is the name, at the position in at
	at        []int
	values    []string // of the last line
}

// errSkip is returned for lines that are neither requests nor invalid.
var errSkip = errors.New("not a request")

// newCSV returns the parser of a log with the given first line.
func newCSV(first string, given []column) (*csvParser, error) {
	first = strings.TrimPrefix(first, "\ufeff")
	p := &csvParser{separator: separatorOf(first), header: first}
	p.names = p.split(first, nil)
	ranks := [attributes]uint8{}
	use := func(a attribute, i int) {
		p.columns, p.at = append(p.columns, column{a, p.names[i]}), append(p.at, i)
	}
	for _, c := range given {
		i, err := p.find(c.field)
		if err != nil {
			return nil, err
		}
		use(c.attribute, i)
		ranks[c.attribute] = 255
		if c.attribute <= attrStart {
			ranks[attrTime], ranks[attrStart] = 255, 255
		}
	}
	slots := slotsOf(synonyms)
	best := map[attribute]int{}
	for i, name := range p.names {
		s, ok := slots[normalized(name)]
		if ok && (ranks[s.attribute] == 0 || ranks[s.attribute] != 255 && s.rank < ranks[s.attribute]) {
			best[s.attribute], ranks[s.attribute] = i, s.rank
		}
	}
	for a := range attributes {
		if i, ok := best[a]; ok && !(a == attrTime && ranks[attrStart] != 0 && ranks[attrTime] != 255 && ranks[attrStart] != 255) {
			use(a, i)
		}
	}
	if ranks[attrTime] == 0 && ranks[attrStart] == 0 {
		return nil, fmt.Errorf("csv: no column is called time, timestamp or similar: write --columns time=COLUMN; columns are %.200q", p.names)
	}
	return p, nil
}

// find returns the position of a column by its name or number.
func (p *csvParser) find(field string) (int, error) {
	for i, name := range p.names {
		if name == field {
			return i, nil
		}
	}
	if n, err := strconv.Atoi(field); err == nil && n >= 1 && n <= len(p.names) {
		p.header = "" // the first line is a request
		return n - 1, nil
	}
	return 0, fmt.Errorf("csv: no column %.100q: columns are %.200q, or write their number from 1 if the first line does not name them", field, p.names)
}

// separatorOf returns the separator that occurs most often in the first line.
func separatorOf(line string) byte {
	best, most := byte(','), 0
	for _, c := range []byte(",;\t|") {
		if n := strings.Count(line, string(c)); n > most {
			best, most = c, n
		}
	}
	return best
}

func (p *csvParser) parse(line string, e *Entry) error {
	if line == p.header || strings.HasPrefix(line, "\ufeff") && line[len("\ufeff"):] == p.header {
		return errSkip
	}
	p.values = p.split(line, p.values[:0])
	if len(p.values) < len(p.names) {
		return fmt.Errorf("%d of %d columns", len(p.values), len(p.names))
	}
	for i, c := range p.columns {
		if err := c.attribute.set(e, p.values[p.at[i]]); err != nil {
			return err
		}
	}
	if e.Record.Time.IsZero() {
		return errNoTime
	}
	return nil
}

// split appends the values of a line to all.
func (p *csvParser) split(line string, all []string) []string {
	for len(all) < maxFields {
		var v string
		var more bool
		if strings.HasPrefix(line, `"`) {
			v, line, more = p.quoted(line)
		} else {
			v, line, more = strings.Cut(line, string(p.separator))
		}
		all = append(all, v)
		if !more {
			break
		}
	}
	return all
}

// quoted reads a value in quotes; quotes inside of it are doubled.
func (p *csvParser) quoted(line string) (v, rest string, more bool) {
	for i := 1; i < len(line); i++ {
		if line[i] != '"' {
			continue
		}
		if i+1 < len(line) && line[i+1] == '"' {
			i++
			continue
		}
		v = line[1:i]
		if strings.IndexByte(v, '"') >= 0 {
			v = strings.ReplaceAll(v, `""`, `"`)
		}
		_, rest, more = strings.Cut(line[i+1:], string(p.separator))
		return v, rest, more
	}
	return line[1:], "", false
}

func (p *csvParser) mapping() []column { return p.columns }

func (p *csvParser) fields(line string, add func(name, value string)) {
	for i, v := range p.split(line, make([]string, 0, 32)) {
		if i < len(p.names) {
			add(p.names[i], v)
		}
		if p.header == "" {
			add(strconv.Itoa(i+1), v)
		}
	}
}
