package rules

import (
	"cmp"
	"errors"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/private"
)

func (c *compiler) limits(it *item) {
	r := it.rule
	if len(r.Limits) == 0 {
		c.fault(r.Pos, "there is no limit: write one, such as limit: 100/min")
		return
	}
	for i := range r.Limits {
		if r.Limits[i].Unlimited || r.Limits[i].DenyAll {
			c.fault(r.Limits[i].Pos, "limit: unlimited and deny are only valid in tiers and overrides: for a whole rule use allow or deny at the top of the file")
			return
		}
	}
	named := make(map[string]int)
	it.limits = c.choice(it, named, r.Limits)
	if r.Tiers != nil {
		c.tiers(it, named, r.Tiers)
	}
	it.overrides = make(map[string]choice)
	head := make(map[string]choice)
	for i := range r.Overrides {
		c.override(it, named, &r.Overrides[i], head)
	}
	addMissing(it.overrides, head)
}

// tiers compiles the limits that an attribute chooses. The values of the attribute are compared as in match.
func (c *compiler) tiers(it *item, named map[string]int, t *Tiers) {
	sound := len(c.faults)
	by, segment := c.refer(it, "tiers", t.By, t.Pos)
	if !segment && by >= 0 && c.attrs.list[by].ip {
		c.fault(t.Pos, "tiers: by: ip is not supported: write overrides for single addresses, or a rule with match: {ip: …}")
	}
	known := len(c.faults) == sound
	it.tierBy, it.tiers = by, make(map[string]choice)
	head := make(map[string]choice)
	for _, written := range slices.Sorted(maps.Keys(t.Limits)) {
		built := c.choice(it, named, t.Limits[written])
		at := t.Pos
		if l := t.Limits[written]; len(l) > 0 {
			at = l[0].Pos
		}
		if !known {
			continue
		}
		value, err := c.canonical(&part{attr: by, segment: segment}, written)
		if err != nil {
			c.fault(at, "tiers: %v", err)
			continue
		}
		if _, twice := it.tiers[value]; twice {
			c.fault(at, "tiers: %q is listed twice, in another spelling: remove one", written)
		}
		c.doubts(at, "tiers", it, by, written, value)
		it.tiers[value] = built
		if value == "GET" && !segment && c.attrs.list[by].is(FieldMethod) {
			head["HEAD"] = built
		}
	}
	addMissing(it.tiers, head)
}

// addMissing copies the choice for GET to HEAD, as match does, unless HEAD has its own.
func addMissing(to, head map[string]choice) {
	for k, built := range head {
		if _, own := to[k]; !own {
			to[k] = built
		}
	}
}

func (c *compiler) override(it *item, named map[string]int, o *Override, head map[string]choice) {
	if len(o.Key) != len(it.rule.Per) {
		c.fault(o.Pos, "overrides: a key needs one value for each attribute of per: %d, not %d", len(it.rule.Per), len(o.Key))
		return
	}
	if len(o.Key) == 0 {
		c.fault(o.Pos, "overrides: the rule has no per and so no keys: change its limit instead")
		return
	}
	built := c.choice(it, named, o.Limits)
	if len(it.per) != len(it.rule.Per) { // already reported; the attribute of each value is unknown
		return
	}
	values, method := slices.Clone(o.Key), -1
	for i, written := range o.Key {
		p := &it.per[i]
		value, err := c.canonical(p, written)
		if err != nil {
			c.fault(o.Pos, "overrides: %v", err)
			return
		}
		c.doubts(o.Pos, "overrides", it, p.attr, written, value)
		if values[i] = value; value == "GET" && p.attr >= 0 && c.attrs.list[p.attr].is(FieldMethod) {
			method = i
		}
	}
	k := c.overrideKey(it, values)
	if _, twice := it.overrides[k]; twice {
		c.fault(o.Pos, "overrides: %v is listed twice: remove one", o.Key)
	}
	it.overrides[k] = built
	if method >= 0 {
		values[method] = "HEAD"
		head[c.overrideKey(it, values)] = built
	}
}

// canonical returns the canonical form of a value written in overrides or tiers.
func (c *compiler) canonical(p *part, written string) (string, error) {
	if !p.segment {
		return c.attrs.list[p.attr].canonicalValue(c.set, written)
	}
	path, err := c.set.writtenPath("/" + written)
	if err != nil || len(path) == 1 || strings.IndexByte(path[1:], '/') >= 0 {
		return "", match.NotASegment(written)
	}
	return path[1:], nil
}

// overrideKey returns the key of requests with these values.
func (c *compiler) overrideKey(it *item, values []string) string {
	var b []byte
	if len(values) > 1 {
		b = keyenc.AppendSeveral(b)
	}
	for i, value := range values {
		var text []byte
		if p := &it.per[i]; p.attr >= 0 && c.attrs.list[p.attr].secret {
			text = appendSecret(nil, &c.set.secret, value)
		} else {
			text = keyenc.AppendValue(nil, value)
		}
		if len(values) > 1 {
			b = keyenc.AppendBytes(b, text)
		} else {
			b = text
		}
	}
	return string(b)
}

// choice compiles a list of limits. If one is unlimited or deny, the whole list is. named are the buckets of the rule
// so far: limits of different lists with the same name share a bucket.
func (c *compiler) choice(it *item, named map[string]int, limits []Limit) choice {
	var built choice
	if len(limits) > maxLimits {
		c.fault(cmp.Or(limits[0].Pos, it.rule.Pos), "%d limits in one list: at most %d are allowed", len(limits), maxLimits)
		return built
	}
	for i := range limits {
		l := &limits[i]
		if l.Unlimited || l.DenyAll {
			return choice{never: l.DenyAll}
		}
		name := it.rule.limitName(limits, i)
		if l.OnFailure > sluice.FailClosed {
			c.fault(l.Pos, "limit: on_failure: there is no constant %d: use FailLocal, FailOpen or FailClosed", l.OnFailure)
		}
		if l.Accuracy > sluice.AccuracyEventual {
			c.fault(l.Pos, "limit: accuracy: there is no constant %d: use AccuracyExact, AccuracyLease or AccuracyEventual", l.Accuracy)
		}
		limit, err := l.Limit.Build()
		if err != nil {
			c.limitFaults(l.Pos, err)
			return choice{}
		}
		if slices.ContainsFunc(built.limits, func(b bucketLimit) bool { return b.enforced != nil && b.enforced.Name == name }) {
			c.fault(l.Pos, "two limits have the name %q: rename one", name)
			return choice{}
		}
		at, known := named[name]
		if !known {
			at = len(it.buckets)
			named[name], it.buckets = at, append(it.buckets, c.bucket(it.rule, name, l.Limit, l.Pos))
		}
		built.limits = append(built.limits, bucketLimit{it.buckets[at], limit})
		c.set.hasConcurrency = c.set.hasConcurrency || limit.Algorithm == sluice.Concurrency
	}
	return built
}

// limitFaults reports the errors of a limit with the keys of rule files.
func (c *compiler) limitFaults(at Position, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			c.limitFaults(at, e)
		}
		return
	}
	var l *sluice.LimitError
	if errors.As(err, &l) {
		c.fault(at, "limit: %s: %s", fieldName(l.Field), l.Msg)
		return
	}
	c.fault(at, "limit: %v", err)
}

// fieldName returns the key of rule files for a field of sluice.Limit.
func fieldName(field string) string {
	switch field {
	case "Count":
		return "rate"
	case "SubWindows":
		return "sub_windows"
	}
	return strings.ToLower(field)
}

// limitName returns the name of the bucket of a limit in a list. It depends only on the list, so that a change of one
// list keeps the counts of the others.
func (r *Rule) limitName(list []Limit, i int) string {
	switch {
	case list[i].Name != "":
		return r.Name + "#" + list[i].Name
	case i > 0:
		return r.Name + "#" + strconv.Itoa(i+1)
	}
	return r.Name
}

func (c *compiler) bucket(r *Rule, name string, limit sluice.Limit, at Position) bucket {
	rule := sluice.Rule{
		Name: name, Limit: limit, OnFailure: r.OnFailure, Shadow: r.Shadow, ChargeDenied: r.ChargeDenied, Accuracy: r.Accuracy,
	}
	rule.ChargeDenied = r.ChargeDenied && limit.Algorithm != sluice.Concurrency                                                                             // a denied request is not in flight
	if r.Accuracy == sluice.AccuracyLease && !private.SupportsLease(&limit) || r.Accuracy == sluice.AccuracyEventual && !private.SupportsEventual(&limit) { // already reported
		rule.Accuracy = sluice.AccuracyExact
	}
	enforced, err := sluice.NewRule(rule)
	rule.Shadow = true
	shadow, err2 := sluice.NewRule(rule)
	if err != nil || err2 != nil {
		if _, limitErr := limit.Build(); limitErr == nil { // else already reported
			c.fault(at, "%v", err)
		}
		return bucket{}
	}
	return bucket{enforced, shadow}
}

func (c *compiler) options(r *Rule) {
	if r.EnforceBasisPoints < 0 || r.EnforceBasisPoints > 100_00 {
		c.fault(r.Pos, "enforce: is not between 0%% and 100%%")
	}
	if r.OnMissing > MissingReject {
		c.fault(r.Pos, "on_missing: there is no constant %d: use MissingShare, MissingSkip or MissingReject", r.OnMissing)
	}
	if r.OnLimit > OnLimitDelay {
		c.fault(r.Pos, "on_limit: there is no constant %d: use OnLimitDeny, OnLimitQueue or OnLimitDelay", r.OnLimit)
	}
	if r.MaxDelay < 0 || r.MaxDelay > 0 && r.OnLimit != OnLimitDelay {
		c.fault(r.Pos, "max_delay: needs on_limit: delay")
	}
	c.queue(r)
	c.denial(r)
	c.actualCost(r)
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.Limit.Algorithm == sluice.Concurrency {
			c.concurrency(r, l)
			continue
		}
		if r.Accuracy != sluice.AccuracyExact && l.Limit.Initial != 0 && l.Limit.Initial != l.Limit.Max() {
			c.fault(l.Pos, "accuracy: initial needs exact, because only the store knows which keys are new: use exact, or remove initial")
			continue
		}
		if r.Accuracy == sluice.AccuracyLease && !private.SupportsLease(&l.Limit) {
			c.fault(l.Pos, "accuracy: lease needs a fixed_window without soft_excess, a token_bucket or a leaky_bucket: use exact, or another algorithm")
		}
		if r.Accuracy == sluice.AccuracyEventual && !private.SupportsEventual(&l.Limit) {
			c.fault(l.Pos, "accuracy: eventual needs a fixed_window without soft_excess, a sliding_window_counter without sub_windows, a token_bucket or a leaky_bucket: use exact, or another algorithm")
		}
		bucket := l.Limit.Algorithm == sluice.TokenBucket || l.Limit.Algorithm == sluice.LeakyBucket
		if r.OnLimit == OnLimitDelay && l.Limit.Algorithm != sluice.LeakyQueue && (r.MaxDelay == 0 || !bucket) {
			c.fault(l.Pos, "on_limit: delay needs algorithm: leaky_queue, whose burst is the length of the delay queue, or a token_bucket or leaky_bucket with a max_delay")
		}
	}
	for _, s := range r.ChargeStatus {
		if s.From < 100 || s.To > 599 || s.From > s.To {
			c.fault(r.Pos, "charge: %d-%d are not HTTP statuses between 100 and 599", s.From, s.To)
		}
	}
}

// concurrency checks the settings of a rule with a concurrency limit.
func (c *compiler) concurrency(r *Rule, l *Limit) {
	if r.Accuracy != sluice.AccuracyExact {
		c.fault(l.Pos, "accuracy: concurrent needs exact, because only the store counts permits: use exact, or move concurrent to another rule")
	}
	if r.OnLimit == OnLimitDelay {
		c.fault(l.Pos, "on_limit: delay is not supported with concurrent, because the end of a request is unknown: use deny, or move concurrent to another rule")
	}
}

func (c *compiler) actualCost(r *Rule) {
	s := r.ActualCost
	if s == nil {
		return
	}
	switch {
	case (s.Header == "") == (s.JSON == ""):
		c.fault(s.Pos, "actual_cost: write either header: X-Tokens-Used or json: usage.total_tokens")
	case s.StripHeader && s.Header == "":
		c.fault(s.Pos, "actual_cost: strip_header: only a header can be removed from the response")
	case s.JSON != "" && strings.Contains("."+s.JSON+".", ".."):
		c.fault(s.Pos, "actual_cost: json: %q has an empty name: write names of fields separated by dots, such as usage.total_tokens", s.JSON)
	}
	if s.Default != nil && (*s.Default < 0 || *s.Default > sluice.MaxCost) {
		c.fault(s.Pos, "actual_cost: default: %d is not between 0 and 2^50", *s.Default)
	}
}

const maxQueueTTL = 366 * 24 * time.Hour

func (c *compiler) queue(r *Rule) {
	o := &r.Queue
	if r.OnLimit != OnLimitQueue {
		if !o.isZero() {
			c.fault(o.Pos, "queue: needs on_limit: queue")
		}
		return
	}
	if o.MaxAttempts < 0 || o.MaxAttempts > MaxDeliveryAttempts {
		c.fault(o.Pos, "queue: max_attempts: %d is not between 1 and %d", o.MaxAttempts, MaxDeliveryAttempts)
	}
	c.checkQueueTTL(o.Pos, "expires_after", o.ExpiresAfter)
	c.checkQueueTTL(o.Pos, "result_ttl", o.ResultTTL)
}

func (o *QueueOptions) isZero() bool {
	return o.Pos == (Position{}) && !o.Ordered && len(o.KeepHeaders) == 0 && o.MaxAttempts == 0 && o.ExpiresAfter == 0 && o.ResultTTL == 0
}

func (c *compiler) checkQueueTTL(at Position, what string, d time.Duration) {
	if d < 0 || d > maxQueueTTL || d > 0 && d < time.Second {
		c.fault(at, "queue: %s: %v is not between 1s and 366 days", what, d)
	}
}

// Bounds of a denial.
const (
	maxDenialMessage = 1 << 10
	maxDenialBody    = 16 << 10
)

// denialWords are the placeholders in a denial's message and body.
var denialWords = []string{"rule", "limit", "retry_after"}

// denial checks the response of a rule's denials.
func (c *compiler) denial(r *Rule) {
	d := &r.Denial
	if d.Status != 0 && (d.Status < 400 || d.Status > 599) {
		c.fault(d.Pos, "denial: status: %d is not between 400 and 599", d.Status)
	}
	if d.Message != "" && d.Body != "" {
		c.fault(d.Pos, "denial: message and body cannot be combined: remove one")
	}
	if d.ContentType != "" && d.Body == "" {
		c.fault(d.Pos, "denial: content_type: needs body: add a body, or remove it")
	}
	if _, _, err := mime.ParseMediaType(d.ContentType); d.ContentType != "" && err != nil {
		c.fault(d.Pos, "denial: content_type: %.80q is not a media type: write one such as text/html or application/json", d.ContentType)
	}
	c.denialTemplate(r, "message", d.Message, maxDenialMessage)
	c.denialTemplate(r, "body", d.Body, maxDenialBody)
	if strings.ContainsAny(d.Message, "\r\n") {
		c.fault(d.Pos, "denial: message: has more than one line: use body instead")
	}
}

func (c *compiler) denialTemplate(r *Rule, what, text string, most int) {
	if len(text) > most {
		c.fault(r.Denial.Pos, "denial: %s: has %d bytes, at most %d are allowed", what, len(text), most)
		return
	}
	for word := range bracedWords(text) {
		if !slices.Contains(denialWords, word) {
			c.fault(r.Denial.Pos, "denial: %s: there is no {%s}: use {rule}, {limit} or {retry_after}", what, word)
		}
	}
}

// bracedWords yields the words of lower-case letters and underscores in braces.
func bracedWords(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for {
			_, after, ok := strings.Cut(text, "{")
			if !ok {
				return
			}
			word, _, closed := strings.Cut(after, "}")
			if closed && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == "" && !yield(word) {
				return
			}
			text = after
		}
	}
}
