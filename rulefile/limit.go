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

// limitContext contains the settings that all limits of a rule share.
type limitContext struct {
	*file
	what      string
	algorithm sluice.Algorithm // of limits without their own
	words     bool             // unlimited and deny are valid
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
			c.Fault(item, "%s: %s cannot be in a list with limits: write it alone", c.what, item)
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
		c.Fault(n, "%s: is a list in a list: write one list", c.what)
	}
	return rules.Limit{}
}

// short reads a limit such as 100/min, unlimited or deny.
func (c limitContext) short(n *strictyaml.Node) rules.Limit {
	l := rules.Limit{Pos: c.at(n)}
	switch {
	case n.Text == "unlimited" && c.words:
		l.Unlimited = true
	case n.Text == "deny" && c.words:
		l.DenyAll = true
	case n.Text == "unlimited":
		c.Fault(n, "%s: unlimited is not valid for a whole rule: remove the rule, or exempt the requests under allow", c.what)
	case n.Text == "deny":
		c.Fault(n, "%s: deny is not valid for a whole rule: list the requests under deny at the top of the file", c.what)
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
		more := ""
		if l.Window != sluice.DefaultPermitTTL {
			more = ", permit_ttl: " + strings.Fields(text)[3]
		}
		c.Fault(n, "%s: %s is the form of the library: write {concurrent: %d%s}", what, n, l.Count, more)
		return sluice.Limit{}, false
	case err == nil:
		return l, true
	case n.Type == strictyaml.Int:
		c.Fault(n, "%s: %s has no unit: write %s/min, or another unit: s, min, h, day, week, month", what, n.Text, n.Text)
	case strings.Contains(text, "concurrent"):
		c.Fault(n, "%s: %s is no limit: write a mapping, such as {concurrent: 5, permit_ttl: 10s}", what, n)
	case strings.Contains(text, ","):
		c.Fault(n, "%s: %s is one value: write a list, [%s]", what, n, text)
	case c.words && !strings.Contains(text, "/"):
		c.Fault(n, "%s: %s is no limit: write a limit such as 10/s, unlimited, or deny", what, n)
	default:
		c.Fault(n, "%s: %s", what, strings.TrimPrefix(err.Error(), "sluice: limit "))
	}
	return sluice.Limit{}, false
}

// count reads a positive number of a limit, with k and M for thousands and millions.
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

// limitDecoder reads the long form of a limit. Values that depend on the rate are stored until the rate is known.
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
	"permit_ttl": func(d *limitDecoder, n *strictyaml.Node) { d.permitTTL = n },

	"rate":        func(d *limitDecoder, n *strictyaml.Node) { d.rateNode = n },
	"window":      func(d *limitDecoder, n *strictyaml.Node) { d.window = n },
	"soft_excess": func(d *limitDecoder, n *strictyaml.Node) { d.over = n },
	"zone":        func(d *limitDecoder, n *strictyaml.Node) { d.zone = n },
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
		i, _ := d.OneOf(n, d.what+": align", "epoch", "first_request", "calendar")
		d.l.Limit.Align = [...]sluice.Align{sluice.AlignEpoch, sluice.AlignFirstRequest, sluice.AlignCalendar}[i]
	},
	"soft_period": func(d *limitDecoder, n *strictyaml.Node) {
		d.l.Limit.SoftPeriod, _ = d.Duration(n, d.what+": soft_period")
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
	"requests_per_unit": "Envoy's key: write rate: 100/min",
	"unit":              "Envoy's key: write the unit after the number, rate: 100/min",
	"limit":             "write rate: 100/min",
	"count":             "write rate: 100/min",
	"per":               "write the unit after the number, rate: 100/min; the per of a rule is next to limit",
	"period":            "write the window after the number, rate: 100/10s, or as window: 10s",
	"interval": "write the window after the number, rate: 100/10s, or as window: 10s; " +
		"to refill once per window write refill: interval",
	"concurrency":    "write concurrent: 5",
	"max_inflight":   "write concurrent: 5",
	"in_flight":      "write concurrent: 5",
	"size":           "write burst: 100, the size of the bucket",
	"capacity":       "write burst: 100, the size of the bucket",
	"initial_tokens": "write initial: 10",
	"warm_up":        "write initial: 10, the level of a new bucket",
	"warmup":         "write initial: 10, the level of a new bucket",
	"timezone":       "write zone: Asia/Seoul",
	"soft":           "write soft_excess: 20% and soft_period: 10s",
	"on_limit":       "move it next to limit, for the whole rule",
	"shadow":         "move it next to limit, for the whole rule",
}

// finish combines the parts. complete means that all keys were read, so that an absent one is missing.
func (d *limitDecoder) finish(n *strictyaml.Node, complete bool) {
	if d.concurrent != nil {
		d.concurrency(n)
		return
	}
	if d.permitTTL != nil && complete {
		d.Fault(d.permitTTL, "%s: permit_ttl: needs concurrent: add concurrent: 5", d.what)
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

// concurrency reads concurrent: 5 and permit_ttl: 30s, which cannot be combined with other keys except name.
func (d *limitDecoder) concurrency(n *strictyaml.Node) {
	for _, f := range n.Fields {
		switch f.Key.Text {
		case "concurrent", "permit_ttl", "name":
		default:
			d.Fault(f.Key, "%s: %s: cannot be combined with concurrent, the maximum number of requests in flight: "+
				"write two limits, [100/min, {concurrent: 5}]", d.what, f.Key.Text)
			return
		}
	}
	count, ok := d.count(d.concurrent, d.what+": concurrent")
	d.l.Limit = sluice.Concurrent(count)
	if d.permitTTL != nil && ok {
		d.l.Limit.Window, _ = d.Duration(d.permitTTL, d.what+": permit_ttl")
	}
}

func (d *limitDecoder) rateAndWindow() bool {
	limit := &d.l.Limit
	withUnit := strings.Contains(d.rateNode.Text, "/")
	if d.window == nil || withUnit {
		rate, ok := d.rate(d.rateNode, d.what+": rate")
		limit.Count, limit.Window = rate.Count, rate.Window
		if ok && d.window != nil {
			d.Fault(d.window, "%s: window: the rate already has a window: write rate: %d, or remove the window",
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

// calendarUnits maps windows of one unit to calendar units.
var calendarUnits = map[time.Duration]sluice.CalendarUnit{
	24 * time.Hour: sluice.CalendarDay, 7 * 24 * time.Hour: sluice.CalendarWeek,
	30 * 24 * time.Hour: sluice.CalendarMonth, 365 * 24 * time.Hour: sluice.CalendarYear,
}

// calendar turns a rate such as 5/day into calendar days. Only fixed windows can follow a calendar.
func (d *limitDecoder) calendar() {
	limit := &d.l.Limit
	_, unit, found := strings.Cut(d.rateNode.Text, "/")
	limit.Calendar = calendarUnits[limit.Window]
	if !found || limit.Calendar == 0 || strings.ContainsAny(unit, "0123456789") { // 30d is not a month
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
		d.Fault(d.zone, "%s: zone: Local differs between machines: write the name of the zone, such as Asia/Seoul", d.what)
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

// readOver reads the excess of a soft limit: a number, or a percentage of the rate.
func (d *limitDecoder) readOver() {
	what := d.what + ": soft_excess"
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
		d.Fault(d.over, "%s: is 0%%: write more than 0%%, or remove soft_excess and soft_period", what)
		return
	}
	count := min(d.l.Limit.Count, 1<<40) // more than a window can count
	over := count * int64(part) / 100_00
	d.l.Limit.SoftExcess = max(1, over)
	if count*int64(part)%100_00 != 0 {
		d.l.Warning = fmt.Sprintf("soft_excess: %s of %d is not a whole number: rounded to %d", d.over.Text, count, d.l.Limit.SoftExcess)
	}
}

// limitKeys maps the fields of a limit to the keys of rule files, if they differ.
var limitKeys = map[string][]string{
	"Count":      {"rate", "requests_per_unit", "concurrent"},
	"Window":     {"window", "rate", "unit", "permit_ttl"},
	"SubWindows": {"sub_windows"},
	"SoftExcess": {"soft_excess"},
	"SoftPeriod": {"soft_period"},
}

// checkLimit reports errors in a limit's numbers. Compiling would find them too, but with Go names and without the
// position.
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

// fileWords replaces Go names in messages about limits by the keys of rule files.
var fileWords = strings.NewReplacer(
	"WithAlgorithm(FixedWindow)", "algorithm: fixed_window", "WithAlgorithm(SlidingWindowCounter)", "algorithm: sliding_window_counter",
	"WithSoftExcess(2, 10*time.Second)", "soft_excess: 2 and soft_period: 10s", "RefillInterval", "refill: interval",
	"AlignFirstRequest", "align: first_request", "AlignCalendar", "align: calendar",
	"RoundDown or RoundNearest", "with rounding: down or nearest",
	"TokenBucket", "token_bucket", "FixedWindow", "fixed_window", "SlidingWindowCounter", "sliding_window_counter",
	"a sliding log", "a sliding_window_log", "a token bucket", "a token_bucket",
	"burst of Count", "burst as large as the rate", "Burst", "burst", "SoftExcess (how", "soft_excess (how", "SoftPeriod (how", "soft_period (how",
)
