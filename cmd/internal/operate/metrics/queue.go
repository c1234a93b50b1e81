package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Queue is how full a queue is, and what this process has done with it.
type Queue struct {
	Up                       bool // it can be written
	Queued, Delivering, Dead int64
	Bytes                    int64
	Oldest                   time.Duration    // since the oldest was accepted that is neither done nor dead
	Totals                   map[string]int64 // by what was done
}

var (
	queueUpDesc     = desc("queue_up", "Whether the queue can be written.")
	queueItemsDesc  = desc("queue_items", "Requests that are kept, by what became of them so far.", "state")
	queueBytesDesc  = desc("queue_bytes", "How much is kept, without results.")
	queueOldestDesc = desc("queue_oldest_seconds", "How long ago the oldest request was accepted that is neither done nor dead.")
	queueTotalDesc  = desc("queue_events_total", "What this process has done with requests that are kept.", "event")
)

func (m *Metrics) collectQueue(out chan<- prometheus.Metric) {
	if m.cfg.Queue == nil {
		return
	}
	q := m.cfg.Queue()
	gauge(out, queueUpDesc, boolValue(q.Up))
	for state, n := range map[string]int64{"queued": q.Queued, "delivering": q.Delivering, "dead": q.Dead} {
		gauge(out, queueItemsDesc, float64(n), state)
	}
	gauge(out, queueBytesDesc, float64(q.Bytes))
	gauge(out, queueOldestDesc, q.Oldest.Seconds())
	for event, n := range q.Totals {
		counter(out, queueTotalDesc, n, event)
	}
}
