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
	decisionsDesc = desc("decisions_total", "Decisions by rule, result and source.", "rule", "result", "source")
	nearDesc      = desc("near_limit_total", "Allowed decisions that left less than 20 % of the limit.", "rule")
	forgivenDesc  = desc("settle_forgiven_total", "Cost of settled reservations that was not charged because the balance was at its minimum.", "rule")
	peakDesc      = desc("rule_peak_utilization_ratio", "Highest utilization of the limit by any key in the last minute; 1 is the whole limit.", "rule")
	limitDesc     = desc("rule_limit", "Cost that the rule allows per window.", "rule")
	windowDesc    = desc("rule_window_seconds", "Length of the rule's window, in seconds.", "rule")
	burstDesc     = desc("rule_burst", "Maximum cost that the rule allows at once.", "rule")

	verdictDesc = desc("rule_verdict", "1 for the verdict on the rule, 0 for verdicts that it had before.", "rule", "verdict")

	upDesc          = desc("store_up", "1 while the store shard is available, else 0.", "shard")
	breakerDesc     = desc("store_breaker_open", "1 while the circuit breaker of the store shard is open, else 0.", "shard")
	storeErrorsDesc = desc("store_errors_total", "Store calls that failed, timed out or were stopped by a circuit breaker, so that fail modes decided.")
	keysDesc        = desc("store_keys", "Buckets in the memory store.")

	reloadOKDesc = desc("rules_last_reload_successful", "1 if the last reload of the rule files succeeded, else 0.")
	reloadAtDesc = desc("rules_last_reload_success_timestamp_seconds", "Unix time of the last successful reload of the rule files.")
	infoDesc     = desc("rules_info", "Always 1; digest identifies the rule set in use.", "digest")

	logDroppedDesc = desc("log_dropped_lines_total", "Lines of the service log that were dropped because the output was blocked or failed.")

	shedDesc             = desc("shed_requests_total", "Requests shed because of overload, those of shadow mode included.", "limit", "priority", "reason")
	adaptiveLimitDesc    = desc("adaptive_limit", "Adaptive limit: maximum number of requests in flight.", "limit")
	adaptiveInFlightDesc = desc("adaptive_limit_in_flight", "Requests in flight under the adaptive limit.", "limit")
	pressureDesc         = desc("process_pressure_ratio", "CPU pressure of the process: 0 is none, at 1 only requests of priority critical are served.")

	delayOldestDesc = desc("delay_oldest_request_age_seconds", "Age of the oldest request in the delay queues (on_limit: delay), in seconds; 0 if there is none.")

	boundDesc = desc("bound_reached_total", "Times that a bound on size, count or time was reached; docs/bounds.md lists the bounds.", "bound")
)

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		decisionsDesc, nearDesc, forgivenDesc, peakDesc, limitDesc, windowDesc, burstDesc, verdictDesc, upDesc, breakerDesc, storeErrorsDesc, keysDesc,
		reloadOKDesc, reloadAtDesc, infoDesc, queueUpDesc, queueItemsDesc, queueBytesDesc, queueOldestDesc, queueTotalDesc,
		shedDesc, adaptiveLimitDesc, adaptiveInFlightDesc, pressureDesc, boundDesc, logDroppedDesc, delayOldestDesc,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.collectRules(out)
	m.collectVerdicts(out)
	m.collectStore(out)
	m.collectQueue(out)
	m.collectOverload(out)
	collectBounds(out)
	gauge(out, delayOldestDesc, shaper.Oldest().Seconds())
	if m.cfg.LostLogLines != nil {
		counter(out, logDroppedDesc, m.cfg.LostLogLines())
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

func (m *Metrics) collectVerdicts(out chan<- prometheus.Metric) {
	if m.cfg.Verdicts == nil {
		return
	}
	for rule, kinds := range m.cfg.Verdicts() {
		for kind, is := range kinds {
			gauge(out, verdictDesc, boolValue(is), rule, kind)
		}
	}
}

// collect sends the decision counters of a rule. The series that every rule has are sent from the start, with 0: otherwise
// the first decision would be missing from rates.
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

// result returns the label result: the decision, and whether it is degraded.
func result(s sluice.Source, v outcome) string {
	failed := s == sluice.SourceFailLocal || s == sluice.SourceFailOpen || s == sluice.SourceFailClosed
	switch {
	case v == shadowDenied:
		return "shadow_denied"
	case v == denied && failed:
		return "degraded_denied"
	case v == denied:
		return "denied"
	case failed:
		return "degraded_allowed"
	}
	return "allowed"
}

// peakUse returns the highest utilization in the current and the previous period, from 0 to 1. If turn is set, a new
// period begins.
func (c *counters) peakUse(turn bool) float64 {
	if turn {
		c.peak[1].Store(c.peak[0].Swap(0))
	}
	return float64(max(c.peak[0].Load(), c.peak[1].Load())) / 1000
}

// pingTime is the timeout of the store ping during a scrape.
const pingTime = time.Second

func (m *Metrics) collectStore(out chan<- prometheus.Metric) {
	counter(out, storeErrorsDesc, m.failures.Load())
	if m.cfg.Keys != nil {
		gauge(out, keysDesc, float64(m.keys.count(m.cfg.Keys)))
	}
	if m.cfg.Servers == nil {
		return
	}
	pinged := true
	if m.cfg.Ping != nil {
		ctx, cancel := context.WithTimeout(context.Background(), pingTime)
		pinged = m.cfg.Ping(ctx) == nil
		cancel()
	}
	n := m.cfg.Servers()
	for i := range n {
		open := m.servers.isOpen(i)
		up := !open && (pinged || n > 1) // with several shards, a failed ping does not identify the failing one
		gauge(out, upDesc, boolValue(up), strconv.Itoa(i))
		gauge(out, breakerDesc, boolValue(open), strconv.Itoa(i))
	}
}

// keyCount caches the number of keys for keyCountTTL: with millions of keys, counting takes the store tens of
// milliseconds.
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
