package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/shaper"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_"+name, help, labels, nil)
}

var (
	decisionsDesc = desc("decisions_total", "Decisions of each rule: what the caller was told, and who decided.", "rule", "result", "source")
	nearDesc      = desc("near_limit_total", "Decisions that allowed and left less than a fifth of the limit.", "rule")
	forgivenDesc  = desc("settle_forgiven_total", "What settlements were not charged, because their keys cannot go further into debt.", "rule")
	peakDesc      = desc("rule_peak_use_ratio", "How much of its limit the busiest key has used, at most, in the last minute; 1 is all.", "rule")
	limitDesc     = desc("rule_limit", "How much a rule allows in its window.", "rule")
	windowDesc    = desc("rule_window_seconds", "How long a rule's window is.", "rule")
	burstDesc     = desc("rule_burst", "The most that a rule allows at once.", "rule")

	upDesc       = desc("store_up", "Whether a server of the store answers.", "server")
	breakerDesc  = desc("breaker_open", "Whether a server of the store is not asked because it failed too often.", "server")
	failuresDesc = desc("store_failures_total", "Calls that the store could not answer, so that the rules' on_failure did.")
	keysDesc     = desc("tracked_keys", "Keys with a count in the store in memory.")

	reloadOKDesc = desc("rules_last_reload_successful", "Whether the rules are what their files say.")
	reloadAtDesc = desc("rules_last_reload_success_timestamp_seconds", "When the rules went live.")
	infoDesc     = desc("rules_info", "Always 1; its label says which rules are live.", "digest")

	logLostDesc = desc("log_lost_total", "Lines of the service's log that were lost: its output was blocked or failed.")

	shedDesc       = desc("shed_total", "Requests that were turned away because not all could be served, or in shadow would have been.", "gate", "priority", "why")
	gateLimitDesc  = desc("gate_limit", "How many requests may be in flight behind a gate, as learnt.", "gate")
	gateFlightDesc = desc("gate_in_flight", "How many requests are in flight behind a gate.", "gate")
	pressureDesc   = desc("process_pressure_ratio", "How much the process has too much to do: 0 is nothing, and from 1 on only what is critical is served.")

	delayOldestDesc = desc("delay_oldest_seconds", "How long the oldest request has waited that is delayed (on_limit: delay); 0 if there is none.")

	boundDesc = desc("bound_reached_total", "Times that a bound on size, count or time was reached; docs/bounds.md lists them.", "bound")
)

// Describe tells what Collect tells of.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		decisionsDesc, nearDesc, forgivenDesc, peakDesc, limitDesc, windowDesc, burstDesc, upDesc, breakerDesc, failuresDesc, keysDesc,
		reloadOKDesc, reloadAtDesc, infoDesc, queueUpDesc, queueItemsDesc, queueBytesDesc, queueOldestDesc, queueTotalDesc,
		shedDesc, gateLimitDesc, gateFlightDesc, pressureDesc, boundDesc, logLostDesc, delayOldestDesc,
	} {
		out <- d
	}
}

// Collect tells the counts as they are now.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.collectRules(out)
	m.collectStore(out)
	m.collectQueue(out)
	m.collectOverload(out)
	collectBounds(out)
	gauge(out, delayOldestDesc, shaper.Oldest().Seconds())
	if m.cfg.LostLogLines != nil {
		counter(out, logLostDesc, m.cfg.LostLogLines())
	}
	if m.cfg.Loaded != nil {
		l := m.cfg.Loaded()
		gauge(out, reloadOKDesc, boolValue(!l.Failed))
		gauge(out, reloadAtDesc, float64(l.At.UnixMilli())/1000)
		gauge(out, infoDesc, 1, l.Digest)
	}
}

func (m *Metrics) collectRules(out chan<- prometheus.Metric) {
	t := m.refresh()
	m.changing.Lock()
	turn := m.peaks.next()
	m.changing.Unlock()
	for _, r := range t.rules {
		c := t.byName[r.Name]
		c.collect(out, r.Name, r.Shadow)
		gauge(out, peakDesc, c.peakUse(turn), r.Name)
		gauge(out, limitDesc, float64(r.Limit.Count), r.Name)
		gauge(out, windowDesc, r.Limit.Window.Seconds(), r.Name)
		gauge(out, burstDesc, float64(r.Limit.Max()), r.Name)
	}
	for _, r := range t.keyed {
		c := t.byName[r.Name]
		c.collect(out, r.Name, false)
		gauge(out, peakDesc, c.peakUse(turn), r.Name)
	}
	if t.byName[otherRule] == nil {
		m.other.collect(out, otherRule, false)
	}
}

// collect tells a rule's decisions. Those that every rule makes are told from the start, or the first of them would be
// missing from rates.
func (c *counters) collect(out chan<- prometheus.Metric, rule string, shadow bool) {
	for source := range c.decisions {
		s := sluice.Source(source)
		for v := range outcomes {
			n := c.decisions[source][v].Load()
			usual := s == sluice.SourceStore && (v == allowed || v == denied && !shadow || v == shadowDenied && shadow)
			if n > 0 || usual {
				counter(out, decisionsDesc, n, rule, result(s, v), s.String())
			}
		}
	}
	counter(out, nearDesc, c.near.Load(), rule)
	counter(out, forgivenDesc, c.forgiven.Load(), rule)
}

// result is what the caller was told, and whether it was because the store could not say.
func result(s sluice.Source, v outcome) string {
	failed := s == sluice.SourceFailLocal || s == sluice.SourceFailOpen || s == sluice.SourceFailClosed
	switch {
	case v == shadowDenied:
		return "shadow_denied"
	case v == denied && failed:
		return "error_denied"
	case v == denied:
		return "denied"
	case failed:
		return "error_allowed"
	}
	return "allowed"
}

// peakUse is the most that was used in this period or the one before. With turn another begins.
func (c *counters) peakUse(turn bool) float64 {
	if turn {
		c.peak[1].Store(c.peak[0].Swap(0))
	}
	return float64(max(c.peak[0].Load(), c.peak[1].Load())) / 1000
}

// pingTime is how long a store may take to say that it is there.
const pingTime = time.Second

func (m *Metrics) collectStore(out chan<- prometheus.Metric) {
	counter(out, failuresDesc, m.failures.Load())
	if m.cfg.Keys != nil {
		gauge(out, keysDesc, float64(m.keys.count(m.cfg.Keys)))
	}
	if m.cfg.Servers == nil {
		return
	}
	answers := true
	if m.cfg.Ping != nil {
		ctx, cancel := context.WithTimeout(context.Background(), pingTime)
		answers = m.cfg.Ping(ctx) == nil
		cancel()
	}
	n := m.cfg.Servers()
	for i := range n {
		away := m.servers.isOpen(i)
		up := !away && (answers || n > 1) // of several, the ping does not say which
		gauge(out, upDesc, boolValue(up), strconv.Itoa(i))
		gauge(out, breakerDesc, boolValue(away), strconv.Itoa(i))
	}
}

// keyCount remembers how many keys there are: a store has to look at all it has to tell, which takes tens of milliseconds
// if there are millions.
type keyCount struct {
	mu sync.Mutex // guards the fields below, and is held while the store counts
	at time.Time
	n  int
}

const keyCountTTL = 10 * time.Second

func (k *keyCount) count(keys func() int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() || time.Since(k.at) >= keyCountTTL {
		k.n, k.at = keys(), time.Now()
	}
	return k.n
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(out chan<- prometheus.Metric, d *prometheus.Desc, n int64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
