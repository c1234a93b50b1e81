package rulefile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// limitContext is what the limits of a rule have in common.
type limitContext struct {
	*file
	what      string
	algorithm sluice.Algorithm // of limits that do not say their own
	words     bool             // unlimited and deny are possible
	uncertain bool             // algorithm has an error
}

// limits reads one limit or a list of them.
func (c limitContext) limits(n *strictyaml.Node) []rules.Limit {
	if n.Kind != strictyaml.Sequence {
		before := c.Count()
		if l := c.limit(n); c.Count() == before {
			return []rules.Limit{l}
		}
		return nil
	}
	if len(n.Items) == 0 {
		c.Fault(n, "%s: the list is empty: write a limit, such as 100/min", c.what)
	}
	var all []rules.Limit
	for _, item := range n.Items {
		before := c.Count()
		l := c.limit(item)
		if (l.Unlimited || l.DenyAll) && len(n.Items) > 1 {
			c.Fault(item, "%s: %s stands alone, not in a list with limits", c.what, item)
		}
		if c.Count() == before {
			all = append(all, l)
		}
	}
	return all
}

func (c limitContext) limit(n *strictyaml.Node) rules.Limit {
	switch n.Kind {
	case strictyaml.Scalar:
		return c.short(n)
	case strictyaml.Mapping:
		d := &limitDecoder{limitContext: c}
		d.l.Pos = c.at(n)
		d.l.Limit.Algorithm = c.algorithm
		before := c.Count()
		complete := strictyaml.Decode(&c.Decoder, n, c.what, limitFields, limitMoved, d)
		d.finish(n, complete && n.Whole())
		if c.Count() == before && (!c.uncertain || d.ownAlgorithm) {
			c.checkLimit(n, c.what, d.l.Limit)
		}
		return d.l
	case strictyaml.Null:
		c.Fault(n, "%s: is empty: write a limit, such as 100/min", c.what)
	default:
		c.Fault(n, "%s: is a list in a list: write one", c.what)
	}
	return rules.Limit{}
}

// short reads a limit such as 100/min, or one of the words.
func (c limitContext) short(n *strictyaml.Node) rules.Limit {
	l := rules.Limit{Pos: c.at(n)}
	switch {
	case n.Text == "unlimited" && c.words:
		l.Unlimited = true
	case n.Text == "deny" && c.words:
		l.DenyAll = true
	case n.Text == "unlimited":
		c.Fault(n, "%s: a rule without a limit is none: remove it, or list what no rule is to limit under allow", c.what)
	case n.Text == "deny":
		c.Fault(n, "%s: to refuse whatever it matches, list that under deny", c.what)
	default:
		var ok bool
		l.Limit, ok = c.rate(n, c.what)
		l.Limit.Algorithm = c.algorithm
		if ok && !c.uncertain {
			c.checkLimit(n, c.what, l.Limit)
		}
	}
	return l
}

// rate reads 100/min.
func (c limitContext) rate(n *strictyaml.Node, what string) (sluice.Limit, bool) {
	text, ok := c.String(n, what)
	if !ok {
		return sluice.Limit{}, false
	}
	l, err := sluice.ParseLimit(text)
	switch {
	case err == nil && l.Algorithm == sluice.Concurrency:
		c.Fault(n, "%s: write {concurrent: %d}", what, l.Count)
		return sluice.Limit{}, false
	case err == nil:
		return l, true
	case n.Type == strictyaml.Int:
		c.Fault(n, "%s: %s has no unit: write %s/min, or another unit: s, min, h, day, week, month", what, n.Text, n.Text)
	case strings.Contains(text, ","):
		c.Fault(n, "%s: %s is one text: write a list, [%s]", what, n, text)
	default:
		c.Fault(n, "%s: %s", what, strings.TrimPrefix(err.Error(), "sluice: limit "))
	}
	return sluice.Limit{}, false
}

// count reads a number as limits have it, with k and M for thousands and millions.
func (c limitContext) count(n *strictyaml.Node, what string) (int64, bool) {
	number, ok := c.number(n, what)
	if ok && number == 0 {
		c.Fault(n, "%s: is 0: write at least 1", what)
	}
	return number, ok && number > 0
}

// number is count for numbers that may be 0.
func (c limitContext) number(n *strictyaml.Node, what string) (int64, bool) {
	l, err := sluice.ParseLimit(n.Text + "/s")
	if n.Kind != strictyaml.Scalar || err != nil {
		c.Fault(n, "%s: is %s: write a whole number, such as 100 or 10k", what, n)
		return 0, false
	}
	return l.Count, true
}

// limitDecoder reads the long form of a limit. What depends on the rate is kept until that is known.
type limitDecoder struct {
	limitContext
	l                     rules.Limit
	rateNode              *strictyaml.Node
	window, over, zone    *strictyaml.Node
	concurrent, permitTTL *strictyaml.Node
	ownAlgorithm          bool
}

var limitFields = strictyaml.Fields[limitDecoder]{
	"concurrent": func(d *limitDecoder, n *strictyaml.Node) { d.concurrent = n },
	"lease":      func(d *limitDecoder, n *strictyaml.Node) { d.permitTTL = n },

	"rate":   func(d *limitDecoder, n *strictyaml.Node) { d.rateNode = n },
	"window": func(d *limitDecoder, n *strictyaml.Node) { d.window = n },
	"over":   func(d *limitDecoder, n *strictyaml.Node) { d.over = n },
	"zone":   func(d *limitDecoder, n *strictyaml.Node) { d.zone = n },
	"burst": func(d *limitDecoder, n *strictyaml.Node) {
		d.l.Limit.Burst, _ = d.count(n, d.what+": burst")
	},
	"initial": func(d *limitDecoder, n *strictyaml.Node) {
		initial, _ := d.number(n, d.what+": initial")
		d.l.Limit = d.l.Limit.WithInitial(initial)
	},
	"algorithm": func(d *limitDecoder, n *strictyaml.Node) {
		d.l.Limit.Algorithm, d.ownAlgorithm = d.readAlgorithm(n, d.what+": algorithm")
	},
	"refill": func(d *limitDecoder, n *strictyaml.Node) {
		i, _ := d.OneOf(n, d.what+": refill", "continuous", "interval")
		d.l.Limit.Refill = [...]sluice.Refill{sluice.RefillContinuous, sluice.RefillInterval}[i]
	},
	"align": func(d *limitDecoder, n *strictyaml.Node) {
		i, _ := d.OneOf(n, d.what+": align", "epoch", "first_hit", "calendar")
		d.l.Limit.Align = [...]sluice.Align{sluice.AlignEpoch, sluice.AlignFirstRequest, sluice.AlignCalendar}[i]
	},
	"for": func(d *limitDecoder, n *strictyaml.Node) {
		d.l.Limit.SoftPeriod, _ = d.Duration(n, d.what+": for")
	},
	"rounding": func(d *limitDecoder, n *strictyaml.Node) {
		i, _ := d.OneOf(n, d.what+": rounding", "down", "nearest")
		d.l.Limit.Rounding = [...]sluice.Rounding{sluice.RoundDown, sluice.RoundNearest}[i]
	},
	"sub_windows": func(d *limitDecoder, n *strictyaml.Node) {
		number, _ := d.Int(n, d.what+": sub_windows", 1, 60)
		d.l.Limit.SubWindows = int(number)
	},
	"name": func(d *limitDecoder, n *strictyaml.Node) {
		d.l.Name, _ = d.String(n, d.what+": name")
	},
}

var limitMoved = map[string]string{
	"requests_per_unit": "that is Envoy's word: write rate: 100/min",
	"unit":              "that is Envoy's word: write it behind the number, rate: 100/min",
	"limit":             "write rate: 100/min",
	"count":             "write rate: 100/min",
	"per":               "write it behind the number, rate: 100/min; whom a rule counts for stands beside limit",
	"period":            "write it behind the number, rate: 100/10s, or as window: 10s",
	"interval": "write it behind the number, rate: 100/10s, or as window: 10s; " +
		"for a refill once a window write refill: interval",
	"concurrency":    "write concurrent: 5",
	"max_inflight":   "write concurrent: 5",
	"in_flight":      "write concurrent: 5",
	"size":           "the size of a bucket is its burst",
	"capacity":       "the size of a bucket is its burst",
	"initial_tokens": "write initial: 10",
	"warm_up":        "write initial: 10, how much a new bucket holds",
	"warmup":         "write initial: 10, how much a new bucket holds",
	"timezone":       "write zone: Asia/Seoul",
	"soft":           "write over: 20% and for: 10s",
	"on_limit":       "it stands beside limit, for the whole rule",
	"shadow":         "it stands beside limit, for the whole rule",
}

// finish puts the parts together. Complete reports whether all keys were read, so that one that is not there is missing.
func (d *limitDecoder) finish(n *strictyaml.Node, complete bool) {
	if d.concurrent != nil {
		d.concurrency(n)
		return
	}
	if d.permitTTL != nil && complete {
		d.Fault(d.permitTTL, "%s: lease: is for a limit on what is in flight: write concurrent: 5 beside it", d.what)
		return
	}
	if d.rateNode == nil && complete {
		d.Fault(n, "%s: there is no rate: write one, such as rate: 100/min", d.what)
	}
	if d.rateNode != nil && (complete || d.window != nil || strings.Contains(d.rateNode.Text, "/")) &&
		d.rateAndWindow() && d.l.Limit.Align == sluice.AlignCalendar {
		d.calendar()
	}
	if d.zone != nil {
		d.readZone()
	}
	if d.over != nil {
		d.readOver()
	}
}

// concurrency reads concurrent: 5 and lease: 30s, beside which nothing else of a limit makes sense.
func (d *limitDecoder) concurrency(n *strictyaml.Node) {
	for _, f := range n.Fields {
		switch f.Key.Text {
		case "concurrent", "lease", "name":
		default:
			d.Fault(f.Key, "%s: %s: is not for concurrent, which limits how many requests are in flight: "+
				"write two limits, [100/min, {concurrent: 5}]", d.what, f.Key.Text)
			return
		}
	}
	count, ok := d.count(d.concurrent, d.what+": concurrent")
	d.l.Limit = sluice.Concurrent(count)
	if d.permitTTL != nil && ok {
		d.l.Limit.Window, _ = d.Duration(d.permitTTL, d.what+": lease")
	}
}

func (d *limitDecoder) rateAndWindow() bool {
	limit := &d.l.Limit
	withUnit := strings.Contains(d.rateNode.Text, "/")
	if d.window == nil || withUnit {
		rate, ok := d.rate(d.rateNode, d.what+": rate")
		limit.Count, limit.Window = rate.Count, rate.Window
		if ok && d.window != nil {
			d.Fault(d.window, "%s: window: the rate says how long already: write rate: %d, or remove the window",
				d.what, rate.Count)
			return false
		}
		return ok
	}
	count, ok := d.count(d.rateNode, d.what+": rate")
	window, ok2 := d.Duration(d.window, d.what+": window")
	limit.Count, limit.Window = count, window
	return ok && ok2
}

// calendarUnits are what windows of one unit are in a calendar.
var calendarUnits = map[time.Duration]sluice.CalendarUnit{
	24 * time.Hour: sluice.CalendarDay, 7 * 24 * time.Hour: sluice.CalendarWeek,
	30 * 24 * time.Hour: sluice.CalendarMonth, 365 * 24 * time.Hour: sluice.CalendarYear,
}

// calendar turns a rate such as 5/day into calendar days. Only fixed windows can follow a calendar.
func (d *limitDecoder) calendar() {
	limit := &d.l.Limit
	_, unit, found := strings.Cut(d.rateNode.Text, "/")
	limit.Calendar = calendarUnits[limit.Window]
	if !found || limit.Calendar == 0 || strings.ContainsAny(unit, "0123456789") { // 30d is no month
		limit.Calendar = 0
		d.Fault(d.rateNode, "%s: rate: a calendar has days, weeks, months and years: write %d/day, %d/week, %d/month or %d/year, "+
			"or remove align: calendar", d.what, limit.Count, limit.Count, limit.Count, limit.Count)
		return
	}
	limit.Window = 0
	if !d.ownAlgorithm {
		limit.Algorithm = sluice.FixedWindow
	}
}

func (d *limitDecoder) readZone() {
	name, ok := d.String(d.zone, d.what+": zone")
	if !ok {
		return
	}
	if name == "Local" {
		d.Fault(d.zone, "%s: zone: Local is another on each machine: write its name, such as Asia/Seoul", d.what)
		return
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		d.Fault(d.zone, "%s: zone: there is no time zone %s: write the name of one, such as Asia/Seoul, Europe/Paris or UTC",
			d.what, d.zone)
		return
	}
	d.l.Limit.Zone = zone
}

// readOver reads how much a soft limit may be exceeded by: a number, or a part of the rate.
func (d *limitDecoder) readOver() {
	what := d.what + ": over"
	if !strings.HasSuffix(d.over.Text, "%") {
		d.l.Limit.SoftExcess, _ = d.count(d.over, what)
		return
	}
	const most = 1000_00
	part, ok := d.Percent(d.over, what, most)
	if !ok {
		return
	}
	if part == 0 {
		d.Fault(d.over, "%s: is 0%%: write how much more, or remove over and for", what)
		return
	}
	count := min(d.l.Limit.Count, 1<<40) // more than a window can count
	over := count * int64(part) / 100_00
	d.l.Limit.SoftExcess = max(1, over)
	if count*int64(part)%100_00 != 0 {
		d.l.Warning = fmt.Sprintf("over: %s of %d is not a whole number: taken for %d", d.over.Text, count, d.l.Limit.SoftExcess)
	}
}

// limitKeys are what rule files call the fields of a limit; others are called the same.
var limitKeys = map[string][]string{
	"Count":      {"rate", "requests_per_unit", "concurrent"},
	"Window":     {"window", "rate", "unit", "lease"},
	"SubWindows": {"sub_windows"},
	"SoftExcess": {"over"},
	"SoftPeriod": {"for"},
}

// checkLimit reports what is wrong with a limit's numbers. Compiling would find it as well, but in the words of Go and
// without the place.
func (f *file) checkLimit(n *strictyaml.Node, what string, l sluice.Limit) {
	_, err := l.Build()
	if err == nil {
		return
	}
	for _, fault := range flatten(err) {
		var e *sluice.LimitError
		if !errors.As(fault, &e) {
			f.Fault(n, "%s: %v", what, fault)
			continue
		}
		keys := limitKeys[e.Field]
		if keys == nil {
			keys = []string{strings.ToLower(e.Field)}
		}
		at, key := n, keys[0]
		for _, k := range keys {
			if node := n.Field(k); node != nil {
				at, key = node, k
				break
			}
		}
		f.Fault(at, "%s: %s: %s", what, key, fileWords.Replace(calendarCall.ReplaceAllString(e.Msg, "add that")))
	}
}

var calendarCall = regexp.MustCompile(`use PerCalendar\([^)]*\)`)

// fileWords are what the parts of Go that messages about limits mention are called in a rule file.
var fileWords = strings.NewReplacer(
	"WithAlgorithm(FixedWindow)", "algorithm: fixed_window", "WithAlgorithm(SlidingWindowCounter)", "algorithm: sliding_window_counter",
	"WithSoftExcess(2, 10*time.Second)", "over: 2 and for: 10s", "RefillInterval", "refill: interval",
	"AlignFirstRequest", "align: first_hit", "AlignCalendar", "align: calendar",
	"RoundDown or RoundNearest", "with rounding: down or nearest",
	"TokenBucket", "token_bucket", "FixedWindow", "fixed_window", "SlidingWindowCounter", "sliding_window_counter",
	"a sliding log", "a sliding_window_log", "a token bucket", "a token_bucket",
	"burst of Count", "burst as large as the rate", "Burst", "burst", "SoftExcess (how", "over (how", "SoftPeriod (how", "for (how",
)
