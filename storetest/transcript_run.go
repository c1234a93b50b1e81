package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluiceproject/sluice"
)

// teller runs transcripts on a store.
type teller struct {
	store  sluice.Store
	clock  *Clock
	plain  bool // ordinary takes go through a limiter, which uses the store's fast path if there is one
	player *player
	taken  map[string]sluice.Take // by label, with Receipt set and Cost the granted cost
}

func newTeller(store sluice.Store, clock *Clock, plain bool) *teller {
	return &teller{store, clock, plain, newPlayer(store, clock), map[string]sluice.Take{}}
}

// run runs the transcript and returns an error with file and line for the first result that differs.
func (t *transcript) run(w *teller) error {
	for i := range t.parts {
		p := &t.parts[i]
		got, err := w.answers(p)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", t.name, p.line, err)
		}
		for j := range max(len(got), len(p.want)) {
			if j >= len(got) || j >= len(p.want) || got[j] != p.want[j] {
				return fmt.Errorf("%s:%d:\n got %s\nwant %s\nafter\n%s", t.name, p.line+j,
					lineOr(got, j), lineOr(p.want, j), strings.Join(p.text, "\n"))
			}
		}
	}
	return nil
}

func lineOr(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

// rewrite runs the transcript and returns its text with the results of the store.
func (t *transcript) rewrite(w *teller) (string, error) {
	var b strings.Builder
	for i := range t.parts {
		p := &t.parts[i]
		got, err := w.answers(p)
		if err != nil {
			return "", fmt.Errorf("%s:%d: %w", t.name, p.line, err)
		}
		p.write(&b, got)
	}
	return b.String(), nil
}

func (p *part) write(b *strings.Builder, answers []string) {
	lines := p.text
	if p.answer {
		lines = append(append(lines[:len(lines):len(lines)], answerRule), answers...)
	}
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
}

// answers runs the calls of a part and returns their results.
func (w *teller) answers(p *part) ([]string, error) {
	var lines []string
	for i := range p.calls {
		more, err := w.play(&p.calls[i])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.calls[i].line, err)
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func (w *teller) play(c *call) ([]string, error) {
	w.clock.Set(c.at)
	ctx := context.Background()
	switch c.verb {
	case "reset", "block":
		keys, ok := w.store.(sluice.StoreAdmin)
		if !ok {
			return nil, fmt.Errorf("%T does not implement sluice.StoreAdmin: declare Caps.NoAdmin", w.store)
		}
		var err error
		if c.verb == "reset" {
			err = keys.Reset(ctx, sluice.Bucket{Rule: c.rule, Key: c.key})
		} else {
			err = keys.Block(ctx, sluice.Bucket{Rule: c.rule, Key: c.key}, c.block)
		}
		return []string{"done"}, err
	case "decide":
		return w.apply(c.parts)
	}
	if c.times == 1 {
		return w.apply([]call{*c})
	}
	return w.repeat(c)
}

// repeat runs a take several times and counts the results.
func (w *teller) repeat(c *call) ([]string, error) {
	counts := map[string]int{}
	once := *c
	once.times = 1
	for range c.times {
		lines, err := w.apply([]call{once})
		if err != nil {
			return nil, err
		}
		verdict, _, _ := strings.Cut(lines[0], " ")
		counts[verdict]++
	}
	var parts []string
	for _, verdict := range []string{"allow", "deny", "never", "invalid"} {
		if n := counts[verdict]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", verdict, n))
		}
	}
	return []string{strings.Join(parts, ", ")}, nil
}

// apply runs several takes as one call.
func (w *teller) apply(calls []call) ([]string, error) {
	takes, out := make([]sluice.Take, len(calls)), make([]sluice.Decision, len(calls))
	for i := range calls {
		takes[i] = w.takeOf(&calls[i])
	}
	ctx := context.Background()
	var err error
	if first := (take{Take: takes[0]}); w.plain && len(takes) == 1 && takes[0].Receipt == 0 && isPlain(&first) {
		out[0], err = w.player.limiter(takes[0].Rule).AllowN(ctx, takes[0].Key, takes[0].Cost)
	} else {
		err = w.store.Apply(ctx, takes, out)
	}
	if errors.Is(err, sluice.ErrInvalid) {
		return []string{"invalid"}, nil
	}
	if err != nil {
		return nil, err
	}
	var lines []string
	for i := range calls {
		if c := &calls[i]; c.verb == "take" && c.label != "" {
			takes[i].Receipt, takes[i].Cost = out[i].Receipt, out[i].Granted
			w.taken[c.label] = takes[i]
			takes[i].Cost = c.take.Cost
		} else if c.verb == "settle" && out[i].Receipt != takes[i].Receipt { // a permit was renewed
			renewed := w.taken[c.label]
			renewed.Receipt = out[i].Receipt
			w.taken[c.label] = renewed
		}
		lines = append(lines, tell(&calls[i], takes[i].Cost, &out[i]))
	}
	return lines, nil
}

// takeOf returns the take of a call, with the Receipt of its label.
func (w *teller) takeOf(c *call) sluice.Take {
	t := c.take
	t.Rule, t.Key = c.rule, c.key
	if c.verb != "giveback" && c.verb != "settle" {
		return t
	}
	earlier := w.taken[c.label]
	t.Rule, t.Key, t.Receipt = earlier.Rule, earlier.Key, earlier.Receipt
	if c.verb == "giveback" {
		if t.Cost == 0 {
			t.Cost = earlier.Cost
		}
		t.Cost = -t.Cost
	}
	return t
}

// tell formats a decision for transcripts.
func tell(c *call, cost int64, d *sluice.Decision) string {
	var b strings.Builder
	switch {
	case c.verb == "giveback":
		fmt.Fprintf(&b, "back %d", -d.Granted)
	case c.verb == "settle" && d.Allowed:
		fmt.Fprintf(&b, "charged %d", d.Granted)
	case d.Allowed:
		b.WriteString("allow")
	case d.ExceedsLimit:
		b.WriteString("never")
	default:
		b.WriteString("deny")
	}
	fmt.Fprintf(&b, " remaining=%d", d.Remaining)
	if c.verb == "take" && d.Allowed && d.Granted != cost {
		fmt.Fprintf(&b, " granted=%d", d.Granted)
	}
	if d.RetryAfter != 0 {
		fmt.Fprintf(&b, " retry=%v", d.RetryAfter)
	}
	fmt.Fprintf(&b, " reset=%v", d.ResetAfter)
	if d.Delay != 0 {
		fmt.Fprintf(&b, " delay=%v", d.Delay)
	}
	if d.Source != sluice.SourceStore || d.ShadowDenied {
		fmt.Fprintf(&b, " source=%v shadow=%v", d.Source, d.ShadowDenied)
	}
	return b.String()
}
