package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
)

// transcript is a file of calls and their results. The package documentation describes the grammar.
type transcript struct {
	name  string
	parts []part
}

// part is a section of a file: text that is preserved, or calls with their results.
type part struct {
	text   []string // as written: comments, blank lines, limits, or the lines of calls above the dashes
	calls  []call
	want   []string // the lines below the dashes
	line   int      // of the first result
	answer bool     // it has a line of dashes
}

// call is one line that starts with "at".
type call struct {
	line  int
	at    time.Time
	verb  string // take, peek, giveback, settle, decide, reset, block
	rule  *sluice.Rule
	key   string
	take  sluice.Take // of take and peek; of giveback and settle only Cost
	times int
	label string // as=…; for giveback and settle the label of the take
	block time.Duration
	parts []call // of decide
}

const answerRule = "----"

// parser parses a transcript line by line.
type parser struct {
	name   string
	line   int
	rules  map[string]*sluice.Rule
	labels map[string]bool
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.name, p.line, fmt.Sprintf(format, args...))
}

// parseTranscript parses a transcript. It is strict: anything unknown is an error with file and line.
func parseTranscript(name, text string) (*transcript, error) {
	p := &parser{name: name, rules: map[string]*sluice.Rule{}, labels: map[string]bool{}}
	t := &transcript{name: name}
	text = strings.TrimRight(text, "\n")
	var open *part // calls without results yet
	answers := false
	for _, line := range strings.Split(text, "\n") {
		p.line++
		bare := strings.TrimSpace(line)
		switch {
		case answers && bare != "":
			open.want = append(open.want, bare)
			continue
		case answers:
			open, answers = nil, false
		case open != nil && bare == answerRule:
			open.answer, open.line, answers = true, p.line+1, true
			continue
		case open != nil && strings.HasPrefix(line, "\t"), strings.HasPrefix(bare, "at "):
			if open == nil {
				t.parts = append(t.parts, part{})
				open = &t.parts[len(t.parts)-1]
			}
			if err := p.call(open, line); err != nil {
				return nil, err
			}
			open.text = append(open.text, line)
			continue
		case open != nil:
			return nil, p.errorf("calls must be followed by a line of %s and their results: %.40q", answerRule, line)
		}
		if err := p.outside(bare); err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part{text: []string{line}})
	}
	if open != nil && !answers {
		return nil, p.errorf("the last calls have no line of %s", answerRule)
	}
	return t, nil
}

// outside parses a line that is not part of calls.
func (p *parser) outside(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.HasPrefix(line, "#"):
		return nil
	case words[0] == "limit":
		return p.limit(words[1:], false)
	case words[0] == "change":
		return p.limit(words[1:], true)
	}
	return p.errorf("%.40q is neither a comment, a limit, a change nor a call", line)
}

// limit parses [NAME:] ALGORITHM COUNT/WINDOW OPTIONS.
func (p *parser) limit(words []string, change bool) error {
	name := "r"
	if len(words) > 0 && strings.HasSuffix(words[0], ":") {
		name, words = strings.TrimSuffix(words[0], ":"), words[1:]
	}
	if _, known := p.rules[name]; known != change {
		return p.errorf("rule %q: use limit for a new rule and change for an existing one", name)
	}
	if len(words) < 2 {
		return p.errorf("a limit needs an algorithm and a count per window, such as: limit token_bucket 10/s")
	}
	rule := sluice.Rule{Name: name}
	var algorithm sluice.Algorithm
	if err := algorithm.UnmarshalText([]byte(words[0])); err != nil {
		return p.errorf("%v", err)
	}
	limit, err := sluice.ParseLimit(words[1])
	if err != nil {
		return p.errorf("%v", err)
	}
	rule.Limit = limit.WithAlgorithm(algorithm)
	options, err := p.options(words[2:])
	if err != nil {
		return err
	}
	for _, o := range options {
		if err := limitOption(&rule, o.name, o.value); err != nil {
			return p.errorf("%s: %v", o.name, err)
		}
	}
	built, err := sluice.NewRule(rule)
	if err != nil {
		return p.errorf("%v", err)
	}
	p.rules[name] = built
	return nil
}

// limitOption applies one option of a limit.
func limitOption(r *sluice.Rule, name, value string) (err error) {
	l := &r.Limit
	choose := func(to map[string]func()) {
		if set, ok := to[value]; ok {
			set()
		} else {
			err = fmt.Errorf("unknown value %q", value)
		}
	}
	switch name {
	case "burst":
		l.Burst, err = strconv.ParseInt(value, 10, 64)
	case "initial":
		var n int64
		n, err = strconv.ParseInt(value, 10, 64)
		*l = l.WithInitial(n)
	case "refill":
		choose(map[string]func(){"interval": func() { l.Refill = sluice.RefillInterval }})
	case "align":
		choose(map[string]func(){"first_hit": func() { l.Align = sluice.AlignFirstRequest }})
	case "calendar":
		l.Align, l.Window = sluice.AlignCalendar, 0
		choose(map[string]func(){
			"day":   func() { l.Calendar = sluice.CalendarDay },
			"week":  func() { l.Calendar = sluice.CalendarWeek },
			"month": func() { l.Calendar = sluice.CalendarMonth },
			"year":  func() { l.Calendar = sluice.CalendarYear },
		})
	case "zone":
		l.Zone, err = time.LoadLocation(value)
	case "over":
		l.SoftExcess, err = strconv.ParseInt(value, 10, 64)
	case "for":
		l.SoftPeriod, err = time.ParseDuration(value)
	case "rounding":
		choose(map[string]func(){"nearest": func() { l.Rounding = sluice.RoundNearest }})
	case "sub_windows":
		l.SubWindows, err = strconv.Atoi(value)
	case "charge_denied":
		choose(map[string]func(){"": func() { r.ChargeDenied = true }})
	case "shadow":
		choose(map[string]func(){"": func() { r.Shadow = true }})
	default:
		err = fmt.Errorf("not an option of a limit")
	}
	return err
}

type option struct{ name, value string }

// options parses words of the form name=value or name.
func (p *parser) options(words []string) ([]option, error) {
	var all []option
	seen := map[string]bool{}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		if seen[name] {
			return nil, p.errorf("%s is given twice", name)
		}
		seen[name] = true
		all = append(all, option{name, value})
	}
	return all, nil
}
