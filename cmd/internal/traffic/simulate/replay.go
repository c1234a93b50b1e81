package simulate

import (
	"context"
	"errors"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Config configures [Replay].
type Config struct {
	Set  *rules.Set
	Logs []logs.Source // in any order; requests are replayed by time
	// User is a reference by which rules read the user of a line, such as "header:X-User", in addition to attr:user and
	// basic_user.
	User string
	// Options are those of reading the logs.
	Options logs.Options
	// Progress is called periodically with the number of replayed requests, and the number of bytes read of a total, which is
	// 0 if unknown. It may be nil.
	Progress func(requests, read, total int64)
}

// ErrNoRequests is returned, together with a report, if the logs contain no valid request.
var ErrNoRequests = errors.New("simulate: the logs contain no valid request")

// storeBytes is the maximum memory for keys; about 10 million fit.
const storeBytes = 1 << 30

// progressRequests is the number of requests between two calls of Progress and checks of the context.
const progressRequests = 1 << 14

// replay replays logs through rules.
type replay struct {
	set     *rules.Set
	limiter *sluice.Limiter
	user    *rules.Field
	now     time.Time
	start   time.Time
	micros  int64

	matched   rules.MatchResult
	decisions []sluice.Decision
	again     []sluice.Take

	result       *Report
	tallies      []*tally
	of           map[*rules.Rule]*tally
	limits       map[string][]*sluice.Rule // by the rule's name
	facts        facts
	unseen       []rules.Field // headers and fields that rules use and no line had so far
	late         int64
	queueUnknown int64 // queued requests with unknown delivery time
}

// Replay replays logs. It returns the error of ctx when ctx is done.
func Replay(ctx context.Context, c Config) (*Report, error) {
	r, err := newReplay(c)
	if err != nil {
		return nil, err
	}
	logs, err := logs.OpenAll(c.Logs, c.Options)
	if err != nil {
		return nil, err
	}
	for {
		e, err := logs.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		if err := r.request(ctx, e); err != nil {
			return nil, err
		}
		if n := r.result.Requests; n%progressRequests == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if c.Progress != nil {
				read, total := logs.Progress()
				c.Progress(n, read, total)
			}
		}
	}
	report := r.report(logs)
	if report.Requests == 0 {
		return report, ErrNoRequests
	}
	return report, nil
}

func newReplay(c Config) (*replay, error) {
	r := &replay{set: c.Set, of: make(map[*rules.Rule]*tally), limits: make(map[string][]*sluice.Rule)}
	var err error
	if r.user, err = userField(c.User); err != nil {
		return nil, err
	}
	store, err := memstore.Open(memstore.Config{MaxBytes: storeBytes, Now: func() time.Time { return r.now }})
	if err != nil {
		return nil, err
	}
	if r.limiter, err = sluice.NewWithRules(store, nil); err != nil {
		return nil, err
	}
	r.result = &Report{Recorded: make(map[string]int64)}
	for _, counting := range c.Set.ActiveRules() {
		r.limits[counting.Name] = counting.Rules
	}
	cfg := c.Set.Config()
	for i := range cfg.Rules {
		rule := &cfg.Rules[i]
		if rule.Disabled {
			continue
		}
		t := &tally{rule: &Rule{Name: rule.Name, At: rule.Pos, Shadow: rule.Shadow, OnLimit: rule.OnLimit}, source: rule}
		r.tallies = append(r.tallies, t)
		r.of[rule] = t
		r.wants(rule)
	}
	return r, nil
}

// request replays one request.
func (r *replay) request(ctx context.Context, e *logs.Entry) error {
	if r.result.Requests == 0 {
		r.start, r.micros = e.Record.Time, e.Micros
		r.result.Timeline.at(r.start)
		for _, t := range r.tallies {
			t.rule.Timeline.at(r.start)
		}
	}
	if e.Micros < r.micros { // the clock never goes back
		r.late++
	} else {
		r.now, r.micros = e.Record.Time, e.Micros
	}
	r.result.Requests++
	r.facts |= factsOf(&e.Record)
	r.lookUp(e)
	if d := e.Record.Decision; d != 0 {
		r.result.Recorded[d.String()]++
	}
	part := r.result.Timeline.at(r.now)
	part.Requests++
	m := &r.matched
	err := r.set.Match(&request{e, r.user}, m)
	switch {
	case err != nil || m.Outcome == rules.MatchRejected:
		r.result.Rejected++
		return nil
	case len(m.Takes) == 0:
		r.result.Unlimited++
		return nil
	}
	denied, err := r.decide(ctx, m, &e.Record)
	if denied {
		part.Denied++
	}
	return err
}

// decide makes the decision of the limiter and counts it. A queued request is not counted as denied.
func (r *replay) decide(ctx context.Context, m *rules.MatchResult, record *accesslog.Record) (denied bool, err error) {
	if len(r.decisions) < len(m.Takes) {
		r.decisions = make([]sluice.Decision, len(m.Takes))
	}
	ds := r.decisions[:len(m.Takes)]
	allowed, err := r.limiter.Decide(ctx, m.Takes, ds)
	if err != nil {
		return false, err
	}
	queued := !allowed && r.mayQueue(m, ds)
	r.count(m, ds, queued)
	switch {
	case queued:
		r.result.Queued++
		return false, r.queue(ctx, m, ds)
	case !allowed:
		r.result.Denied++
		return true, nil
	case r.delay(m, ds) > 0:
		r.result.Delayed++
	default:
		r.result.Allowed++
	}
	return false, r.refund(ctx, m, ds, record.Status)
}

// mayQueue reports whether all rules that deny the request would queue it.
func (r *replay) mayQueue(m *rules.MatchResult, ds []sluice.Decision) bool {
	for i := range ds {
		if !ds[i].Allowed && (m.Rules[i].OnLimit != rules.OnLimitQueue || ds[i].ExceedsLimit) {
			return false
		}
	}
	return true
}

// count counts the decisions by rule, each rule once.
func (r *replay) count(m *rules.MatchResult, ds []sluice.Decision, queued bool) {
	for from := 0; from < len(ds); {
		rule := m.Rules[from]
		end, over, wait := from, -1, time.Duration(0)
		for ; end < len(ds) && m.Rules[end] == rule; end++ {
			if (!ds[end].Allowed || ds[end].ShadowDenied) && over < 0 {
				over = end
			}
			if ds[end].Allowed && ds[end].Granted > 0 {
				wait = max(wait, ds[end].Delay)
			}
		}
		t := r.of[rule]
		t.rule.Requests++
		t.peak.add(r.micros / 1e6)
		part := t.rule.Timeline.at(r.now)
		part.Requests++
		switch {
		case over >= 0 && queued:
			t.rule.Queued++
			t.keys.add(m.Takes[over].Key)
		case over >= 0:
			t.rule.Denied++
			part.Denied++
			t.keys.add(m.Takes[over].Key)
		case wait > 0:
			t.rule.Delayed++
			t.wait(wait)
			t.keys.add(m.Takes[from].Key)
		}
		from = end
	}
}

func (t *tally) wait(d time.Duration) {
	t.waited += d
	t.rule.MaxWait = max(t.rule.MaxWait, d)
}

// delay returns the delay of the request. Shadow rules do not delay.
func (r *replay) delay(m *rules.MatchResult, ds []sluice.Decision) (most time.Duration) {
	for i := range ds {
		if ds[i].Granted > 0 && !m.Takes[i].Rule.Shadow {
			most = max(most, ds[i].Delay)
		}
	}
	return most
}

// longest is the maximum time in the queue.
const longest = 366 * 24 * time.Hour

// queue charges the request at the time at which the queue would deliver it, so that later ones are delivered after it.
func (r *replay) queue(ctx context.Context, m *rules.MatchResult, ds []sluice.Decision) error {
	r.again = append(r.again[:0], m.Takes...)
	for i := range r.again {
		if m.Rules[i].OnLimit == rules.OnLimitQueue {
			r.again[i].MaxDelay = longest
		}
	}
	over := -1
	for i := range ds {
		if !ds[i].Allowed && over < 0 {
			over = i
		}
	}
	allowed, err := r.limiter.Decide(ctx, r.again, ds)
	if err != nil {
		return err
	}
	if !allowed {
		r.queueUnknown++
		return nil
	}
	r.of[m.Rules[over]].wait(r.delay(m, ds))
	return nil
}

// refund refunds rules that charge certain statuses only, for a request with another status.
func (r *replay) refund(ctx context.Context, m *rules.MatchResult, ds []sluice.Decision, status int) error {
	r.again = r.again[:0]
	for i := range m.Takes {
		charged := m.Rules[i].ChargeStatus
		if len(charged) == 0 || charged.Contains(status) {
			continue
		}
		if back, ok := m.Takes[i].Settlement(&ds[i], 0); ok {
			r.again = append(r.again, back)
		}
	}
	if len(r.again) == 0 {
		return nil
	}
	return r.limiter.Settle(ctx, r.again)
}
