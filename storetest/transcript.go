package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
)

// transcript is a file of calls and of what a store answers. The grammar is in the package comment.
type transcript struct {
	name  string
	parts []part
}

// part is a stretch of a file: text that is only carried along, or calls with their answers.
type part struct {
	text   []string // as written: comments, blank lines, limits; of calls, what stands above the rule
	calls  []call
	want   []string // below the rule
	line   int      // of the first answer
	answer bool     // has a rule
}

// call is one line that begins with "at".
type call struct {
	line  int
	at    time.Time
	verb  string // take, peek, giveback, settle, decide, reset, block
	rule  *sluice.Rule
	key   string
	take  sluice.Take // of take and peek; of giveback and settle, Cost only
	times int
	label string // as=…; of giveback and settle, whose take is meant
	block time.Duration
	parts []call // of decide
}

const answerRule = "----"

// parser reads a transcript line by line.
type parser struct {
	name   string
	line   int
	rules  map[string]*sluice.Rule
	labels map[string]bool
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.name, p.line, fmt.Sprintf(format, args...))
}

// parseTranscript reads a transcript. It is strict: what it does not know is an error with file and line.
func parseTranscript(name, text string) (*transcript, error) {
	p := &parser{name: name, rules: map[string]*sluice.Rule{}, labels: map[string]bool{}}
	t := &transcript{name: name}
	text = strings.TrimRight(text, "\n")
	var open *part // calls that wait for their answers
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
			return nil, p.errorf("calls end with a line of %s, and what is answered below it: %.40q", answerRule, line)
		}
		if err := p.outside(bare); err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part{text: []string{line}})
	}
	if open != nil && !answers {
		return nil, p.errorf("the last calls have no %s", answerRule)
	}
	return t, nil
}

// outside reads a line that is not part of calls.
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

// limit reads [NAME:] ALGORITHM COUNT/WINDOW OPTIONS.
func (p *parser) limit(words []string, change bool) error {
	name := "r"
	if len(words) > 0 && strings.HasSuffix(words[0], ":") {
		name, words = strings.TrimSuffix(words[0], ":"), words[1:]
	}
	if _, known := p.rules[name]; known != change {
		return p.errorf("rule %q: limit is for a new rule and change for a known one", name)
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
			err = fmt.Errorf("%q is not known here", value)
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

// options reads words of the form name=value or name.
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
