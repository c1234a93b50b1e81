package simulate

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/rules"
)

// Report is what the rules would have made of a log.
type Report struct {
	Logs  []Log
	Start time.Time
	End   time.Time // of the last request's beginning, as far as the log tells it

	Requests  int64
	Allowed   int64 // at once, by limits; Delayed and Unlimited are not among them
	Delayed   int64
	Queued    int64
	Denied    int64
	Refused   int64 // by the rules before limits, or because they cannot be counted
	Unlimited int64 // no limit is for them
	Recorded  map[string]int64

	Rules    []Rule
	Timeline Timeline
	Notes    []string // what the numbers do not tell
}

// Log is what was read of a log.
type Log struct {
	Name   string
	Lines  int
	Bad    int // lines that could not be read
	Faults []accesslog.Fault
	// Skipped is the number of lines that no rule counts: exempt requests and deliveries.
	Skipped int64
}

func (r *Report) skipped() (n int64) {
	for i := range r.Logs {
		n += r.Logs[i].Skipped
	}
	return n
}

// Rule is what a rule would have done.
type Rule struct {
	Name     string
	At       rules.Position
	Shadow   bool // it would only have reported
	OnLimit  rules.OnLimit
	Requests int64 // that it matches and counts
	Denied   int64
	Delayed  int64
	Queued   int64
	Peak     int64 // the most requests in a second
	// How long requests would have waited that were delayed or queued.
	MeanWait, MaxWait time.Duration
	Unseen            []string // what it asks for and the log does not tell
	Keys              []Key    // those with the most denials, delays and places in the queue
	Missed            int64    // the counts of keys may be too low by this much, since there were so many keys
	Timeline          Timeline
}

// Key is whom a rule counts for.
type Key struct {
	Parts []rules.KeyPart
	Count int64
}

// topKeys is how many keys of a rule are reported.
const topKeys = 5

// tally counts what a rule does.
type tally struct {
	rule   *Rule
	source *rules.Rule
	peak   peak
	keys   keyCounter
	waited time.Duration
}

func (r *replay) report(logs []*logs.Log) *Report {
	p := r.result
	p.Start, p.End = r.start, r.now
	combined := int64(0)
	for _, s := range logs {
		bad, faults := s.Reader.Errors()
		p.Logs = append(p.Logs, Log{Name: s.Name, Lines: s.Reader.Lines(), Bad: bad, Faults: faults, Skipped: s.Skipped})
		combined += s.Formats[accesslog.Combined]
	}
	for _, t := range r.tallies {
		t.rule.Unseen = r.missingFields(t.source)
		t.rule.Peak = t.peak.max
		if n := t.rule.Delayed + t.rule.Queued; n > 0 {
			t.rule.MeanWait = t.waited / time.Duration(n)
		}
		t.rule.Keys, t.rule.Missed = r.topKeys(t), t.keys.missed
		p.Rules = append(p.Rules, *t.rule)
	}
	r.notes(combined)
	return p
}

// topKeys are the keys of a rule, which all of its limits count.
func (r *replay) topKeys(t *tally) []Key {
	all := []Key{}
	limits := r.limits[t.source.Name]
	if len(limits) == 0 {
		return all
	}
	for _, c := range t.keys.top(topKeys) {
		all = append(all, Key{Parts: r.set.KeyParts(limits[0], c.key), Count: c.n})
	}
	return all
}

// notes says what the numbers do not tell.
func (r *replay) notes(combined int64) {
	p := r.result
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if combined > 0 {
		note("Common and combined logs have times of whole seconds, and nginx writes when a request ends. Here the requests of a second " +
			"arrive at once: limits with small bursts deny more than they would have.")
	}
	if skipped := p.skipped(); skipped > 0 {
		note("%d lines are passed over: CORS preflights, requests below /.sluice and deliveries, which no rule counts.", skipped)
	}
	if p.Denied > 0 {
		note("Clients that are denied may stop or try again: a log of clients that were not denied cannot tell.")
	}
	if r.late > 0 {
		note("%d requests were out of order by more than %d lines, and counted later than they came.", r.late, logs.Window)
	}
	if r.queueUnknown > 0 {
		note("%d queued requests are of limits without places in a queue: when they would be done was not replayed.", r.queueUnknown)
	}
	if len(r.set.Config().Domains) > 0 {
		note("Limits of Envoy domains are not replayed: access logs do not hold descriptors.")
	}
}
