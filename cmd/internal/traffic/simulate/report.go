package simulate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/rules"
)

// Report is the result of a replay.
type Report struct {
	Logs  []Log
	Start time.Time
	End   time.Time // start of the last request

	Requests  int64
	Allowed   int64 // without delay; excludes Delayed and Unlimited
	Delayed   int64
	Queued    int64
	Denied    int64
	Rejected  int64 // before limits, or because the key is invalid
	Unlimited int64 // no rule matches
	Recorded  map[string]int64

	Rules    []Rule
	Timeline Timeline
	Notes    []string // limitations of the result
}

// Log describes a log that was read.
type Log struct {
	Name       string
	Format     string        // "" if the log is empty
	Mapping    string        // fields of CSV and JSON logs: time=TIMESTAMP, ip=client
	Resolution time.Duration // of the times
	Disorder   time.Duration // maximum time by which a request started before one on an earlier line
	Lines      int
	Bad        int // number of invalid lines
	Faults     []logs.Fault
	Hosts      int64 // requests of clients that the log names by host
	// Skipped is the number of lines not subject to rules: exempt requests and deliveries.
	Skipped int64
}

func (r *Report) hosts() (n int64) {
	for i := range r.Logs {
		n += r.Logs[i].Hosts
	}
	return n
}

func (r *Report) skipped() (n int64) {
	for i := range r.Logs {
		n += r.Logs[i].Skipped
	}
	return n
}

// Rule is the result of one rule.
type Rule struct {
	Name     string
	At       rules.Position
	Shadow   bool // in shadow mode
	OnLimit  rules.OnLimit
	Requests int64 // that the rule matches and counts
	Denied   int64
	Delayed  int64
	Queued   int64
	Peak     int64 // maximum requests in one second
	// Delay of delayed and queued requests.
	MeanWait, MaxWait time.Duration
	Unseen            []string // references that the log does not contain
	Keys              []Key    // keys with the most denied, delayed and queued requests
	Missed            int64    // the counts of keys may be too low by this; 0 with at most maxKeys keys
	Timeline          Timeline
}

// Key is a key of a rule with its count.
type Key struct {
	Parts []rules.KeyPart
	Count int64
}

// topKeys is the maximum number of reported keys per rule.
const topKeys = 5

// tally counts the decisions of a rule.
type tally struct {
	rule   *Rule
	source *rules.Rule
	peak   peak
	keys   keyCounter
	waited time.Duration
}

func (r *replay) report(read *logs.Merged) *Report {
	p := r.result
	p.Start, p.End = r.start, r.now
	for _, l := range read.Logs {
		bad, faults := l.Errors()
		p.Logs = append(p.Logs, Log{
			Name: l.Name, Format: l.Format(), Mapping: l.Mapping(), Resolution: l.Resolution(), Disorder: l.Disorder, Lines: l.Lines(), Bad: bad,
			Faults: faults, Hosts: l.Hosts, Skipped: l.Skipped,
		})
	}
	for _, t := range r.tallies {
		t.rule.Unseen = r.missingFields(t.source)
		t.rule.Peak = t.peak.max
		if n := t.rule.Delayed + t.rule.Queued; n > 0 {
			t.rule.MeanWait = t.waited / time.Duration(n)
		}
		t.rule.Keys, t.rule.Missed = r.topKeys(t, read), t.keys.missed
		p.Rules = append(p.Rules, *t.rule)
	}
	r.notes()
	return p
}

// topKeys returns the top keys of a rule. All limits of a rule have the same keys.
func (r *replay) topKeys(t *tally, read *logs.Merged) []Key {
	all := []Key{}
	limits := r.limits[t.source.Name]
	if len(limits) == 0 {
		return all
	}
	for _, c := range t.keys.top(topKeys) {
		parts := r.set.KeyParts(limits[0], c.key)
		for i := range parts {
			if p, err := netip.ParsePrefix(parts[i].Value); err == nil {
				parts[i].Value = cmp.Or(read.HostName(p), parts[i].Value)
			}
		}
		all = append(all, Key{Parts: parts, Count: c.n})
	}
	return all
}

// notes adds notes on the limitations of the result.
func (r *replay) notes() {
	p := r.result
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if slices.ContainsFunc(p.Logs, func(l Log) bool { return l.Resolution == time.Second }) {
		note("Times in the log have a resolution of 1 s, and nginx logs the end of a request. All requests of a second are replayed at once, " +
			"so that limits with small bursts deny more requests than in production.")
	}
	if n := p.hosts(); n > 0 {
		note("%d requests have a host name instead of a client IP. Rules per IP count each name as one client.", n)
	}
	if skipped := p.skipped(); skipped > 0 {
		note("%d lines were skipped: CORS preflights, requests below /.sluice and deliveries are not subject to rules.", skipped)
	}
	if p.Denied > 0 {
		note("Denied clients may stop or retry. The replay does not model this.")
	}
	if r.late > 0 {
		note("%d requests were out of order by more than %d lines and were counted late. The maximum is %s.", r.late, logs.Window, r.disorder())
	}
	if r.queueUnknown > 0 {
		note("The delivery of %d queued requests was not replayed: the algorithm of their limits has no delays.", r.queueUnknown)
	}
	if len(r.set.Config().Domains) > 0 {
		note("Limits of Envoy domains are not replayed: access logs contain no descriptors.")
	}
}

// disorder returns the maximum time by which a request started before one on an earlier line.
func (r *replay) disorder() (most time.Duration) {
	for i := range r.result.Logs {
		most = max(most, r.result.Logs[i].Disorder)
	}
	return most
}
