package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Queue is the state of the durable queue and the number of its events in this process.
type Queue struct {
	Up                       bool // the queue can be written
	Queued, Delivering, Dead int64
	Bytes                    int64
	Oldest                   time.Duration    // time since the oldest queued or delivering item was accepted
	Totals                   map[string]int64 // by event
}

var (
	queueUpDesc     = desc("queue_up", "1 if the queue can be written, else 0.")
	queueItemsDesc  = desc("queue_items", "Queue items by state.", "state")
	queueBytesDesc  = desc("queue_bytes", "Size of all queue items without stored results, in bytes.")
	queueOldestDesc = desc("queue_oldest_item_age_seconds", "Time since the oldest queued or delivering item was accepted, in seconds.")
	queueTotalDesc  = desc("queue_events_total", "Events of queue items in this process.", "event")
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
