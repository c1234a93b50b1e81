package storetest

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxTimes bounds n=, so that a typing error cannot make a file run for hours.
const maxTimes = 100_000

// call parses "at TIME VERB …", or an indented line below a decide.
func (p *parser) call(to *part, line string) error {
	words, err := splitWords(line)
	if err != nil {
		return p.errorf("%v", err)
	}
	if strings.HasPrefix(line, "\t") {
		if len(to.calls) == 0 || to.calls[len(to.calls)-1].verb != "decide" {
			return p.errorf("only lines below decide may be indented")
		}
		d := &to.calls[len(to.calls)-1]
		c := call{line: p.line, at: d.at, times: 1}
		if err := p.verb(&c, words, true); err != nil {
			return err
		}
		d.parts = append(d.parts, c)
		return nil
	}
	if len(words) < 3 {
		return p.errorf("a call has the form: at TIME VERB …")
	}
	at, err := parseTime(words[1])
	if err != nil {
		return p.errorf("%v", err)
	}
	c := call{line: p.line, at: at, times: 1}
	if err := p.verb(&c, words[2:], false); err != nil {
		return err
	}
	to.calls = append(to.calls, c)
	return nil
}

// verb parses VERB SUBJECT OPTIONS.
func (p *parser) verb(c *call, words []string, within bool) error {
	c.verb = words[0]
	verbs := []string{"take", "peek", "giveback", "settle", "reset", "block", "decide"}
	if within {
		verbs = verbs[:4]
	}
	known := false
	for _, v := range verbs {
		known = known || v == c.verb
	}
	if !known {
		return p.errorf("unknown verb %q: use one of %s", c.verb, strings.Join(verbs, ", "))
	}
	words = words[1:]
	if c.verb == "decide" {
		if len(words) > 0 {
			return p.errorf("decide has no arguments; its takes are the indented lines below it")
		}
		return nil
	}
	if len(words) == 0 {
		return p.errorf("%s needs a key or a label", c.verb)
	}
	subject := words[0]
	options, err := p.options(words[1:])
	if err != nil {
		return err
	}
	if c.verb == "giveback" || c.verb == "settle" {
		if !p.labels[subject] {
			return p.errorf("no earlier take has the label %q (as=%s)", subject, subject)
		}
		c.label = subject
	} else {
		c.key = subject
		c.rule = p.rules["r"]
	}
	if c.verb == "take" {
		c.take.Cost = 1
	}
	for _, o := range options {
		if err := p.callOption(c, o.name, o.value); err != nil {
			return p.errorf("%s: %v", o.name, err)
		}
	}
	if c.key != "" && c.rule == nil || c.label == "" && c.rule == nil {
		return p.errorf("the rule is missing: add rule=NAME, or declare a rule without a name")
	}
	return p.finish(c, within)
}

// finish checks the combination of options.
func (p *parser) finish(c *call, within bool) error {
	switch {
	case c.verb == "settle" && c.take.Cost <= 0:
		return p.errorf("settle needs more=N, the cost of the take beyond its charge")
	case c.times > 1 && (within || c.label != ""):
		return p.errorf("n= requires a single take without a label")
	}
	if c.verb == "take" && c.label != "" {
		if p.labels[c.label] {
			return p.errorf("two takes have the label %q", c.label)
		}
		p.labels[c.label] = true
	}
	return nil
}

var callOptions = map[string]string{
	"take": "rule cost min maxdelay id n as", "peek": "rule maxdelay", "giveback": "cost id", "settle": "more",
	"reset": "rule", "block": "rule for",
}

func (p *parser) callOption(c *call, name, value string) (err error) {
	fits := false
	for _, o := range strings.Fields(callOptions[c.verb]) {
		fits = fits || o == name
	}
	if !fits {
		return errors.New("not an option of a " + c.verb)
	}
	t := &c.take
	switch name {
	case "rule":
		if c.rule = p.rules[value]; c.rule == nil {
			return errors.New("no limit with this name above")
		}
	case "cost", "more":
		t.Cost, err = strconv.ParseInt(value, 10, 64)
	case "min":
		t.MinGrant, err = strconv.ParseInt(value, 10, 64)
	case "maxdelay":
		t.MaxDelay, err = time.ParseDuration(value)
	case "for":
		c.block, err = time.ParseDuration(value)
		if err == nil && c.block < 0 {
			err = errors.New("use a positive duration, or 0s to lift a block")
		}
	case "id":
		t.IdempotencyID, err = strconv.ParseUint(value, 10, 64)
	case "n":
		c.times, err = strconv.Atoi(value)
		if err == nil && (c.times < 1 || c.times > maxTimes) {
			err = errors.New("not between 1 and 100000")
		}
	case "as":
		if c.label = value; value == "" {
			err = errors.New("is empty")
		}
	}
	return err
}

// splitWords splits a line at spaces; a word may be quoted as in Go.
func splitWords(line string) ([]string, error) {
	var words []string
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		if rest[0] == '"' {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, errors.New("missing closing quote")
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, err
			}
			words, rest = append(words, word), rest[len(quoted):]
			if rest != "" && rest[0] != ' ' {
				return nil, errors.New("missing space after a quoted word")
			}
			continue
		}
		word, after, _ := strings.Cut(rest, " ")
		words, rest = append(words, word), after
	}
	return words, nil
}

// parseTime parses a time: a duration after the start, a time of day on its date, or a date and time.
func parseTime(s string) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return ClockStart.Add(d), nil
	}
	if t, err := time.Parse("15:04:05", s); err == nil {
		return ClockStart.Truncate(24 * time.Hour).Add(t.Sub(t.Truncate(24 * time.Hour))), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1971 || t.Year() > 2200 {
		return time.Time{}, errors.New(`"` + s + `" is not a time: write 90s, 01:02:03 or 2026-03-02T01:02:03Z`)
	}
	return t, nil
}
