package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/goroutines"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// Queue is a durable queue of requests. It is safe for concurrent use.
type Queue struct {
	cfg    Config
	log    *slog.Logger
	owner  string // ID of this process
	cipher *itemCipher
	stats  stats

	current atomic.Pointer[session] // nil: the queue is not writable
	known   atomic.Pointer[index]   // index of the last session
	broken  chan *session           // sessions that failed
	woken   chan struct{}           // signals that an item may be due
	sooner  chan struct{}           // signals that an item expires earlier than all others
	why     atomic.Pointer[error]   // error that ended the last session, or that prevents the next one

	lifetime
	looking sync.Mutex // held by the worker that waits for the next item

	place  *place // nil with an external server
	disk   diskSpace
	ledger *ledger // of the items in the directory; nil with an external server

	puts    puts
	deadLog deadLog

	mu         sync.Mutex // guards the following, and handOut against ending
	deliveries map[string]*activeDelivery
}

// lifetime contains the contexts of the activities of a queue.
type lifetime struct {
	life     context.Context // ends all writes: at Close, or when the drain timeout is exceeded
	end      context.CancelFunc
	work     context.Context // ends deliveries in flight during the shutdown
	stopWork context.CancelFunc
	ending   atomic.Bool      // the shutdown has begun
	out      sync.WaitGroup   // deliveries in flight and calls of Next
	beside   goroutines.Group // goroutines of Open and of sessions; they end with life
}

type stats struct{ accepted, rejected, delivered, failed, deadLettered, denied, cancelled, requeued, lost atomic.Int64 }

// Put stores an item and returns its ID. When it returns without an error, the item is on disk.
func (q *Queue) Put(ctx context.Context, it Item) (id string, err error) {
	now := time.Now().UTC()
	it.ID, it.Accepted = newID(), now
	it.IdempotencyKey = cmp.Or(it.IdempotencyKey, it.ID)
	it.Attempts = cmp.Or(it.Attempts, 10)
	it.Results = cmp.Or(it.Results, time.Hour)
	if it.Expires.IsZero() {
		it.Expires = now.Add(24 * time.Hour)
	}
	err = q.put(ctx, &it)
	if err != nil {
		q.stats.rejected.Add(1)
		return "", err
	}
	q.stats.accepted.Add(1)
	return it.ID, nil
}

func (q *Queue) put(ctx context.Context, it *Item) error {
	s := q.current.Load()
	if err := q.Err(); err != nil || s == nil {
		return cmp.Or(err, ErrUnavailable)
	}
	if q.place != nil && !q.disk.has(q.place.own, q.cfg.MinFreeDisk) {
		return fmt.Errorf("%w: disk nearly full: free disk space", ErrUnavailable)
	}
	subject := q.subject("item", it.ID)
	data := q.cipher.encrypt(subject, encodeItem(it))
	o := itemHeader{it.Rule, it.Key, it.Ordered, it.Accepted, it.Expires, it.Attempts, it.Results, len(data), ""}
	if it.Key == "" && it.Client.IsValid() {
		o.client = string(keyenc.AppendAddr(nil, it.Client, 64))
	}
	head := q.cipher.sealHeader(subject, &o)
	if len(data) > s.maxItem || len(head) > roomForHeaders/2 {
		return fmt.Errorf("%w: %d bytes, maximum %d", ErrTooLarge, len(data), s.maxItem)
	}
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{itemHeaderField: {head}}}
	// A cancelled request does not cancel the write, because its result would then be unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if !s.index.announce(it.ID, &o) {
		return ErrShareFull
	}
	defer q.puts.begin(it.ID)()
	_, err := s.js.PublishMsg(ctx, m)
	if err == nil && s.place != nil {
		err = s.place.check()
	}
	if err == nil {
		q.ledger.add(it.ID, it.Accepted)
		return nil // the index receives the item from the stream, in order
	}
	var refused *jetstream.APIError
	s.index.withdraw(it.ID)
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == codeFull && isLimit(refused.Description):
		if refused.Description == maxBytesText {
			bounds.QueueBytes.Reached()
		} else {
			bounds.QueueItems.Reached()
		}
		return ErrFull
	case errors.Is(err, nats.ErrMaxPayload):
		return ErrTooLarge
	}
	if refused == nil {
		q.puts.reject(it.ID)
	}
	q.fault(s, err)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// codeFull is the error code of a stream that could not store a message.
const codeFull = 10077

// isLimit reports whether the stream is full, as opposed to its disk.
func isLimit(text string) bool { return text == maxBytesText || text == "maximum messages exceeded" }

const maxBytesText = "maximum bytes exceeded"

// puts tracks the running calls of Put in this process, and rejected items. The zero value is ready for use.
type puts struct {
	mu       sync.Mutex               // guards the following
	running  map[string]chan struct{} // closed when the Put has ended
	rejected map[string]time.Time     // items whose Put failed and that may be stored nevertheless
}

// begin registers a running Put. The caller must call done at its end.
func (p *puts) begin(id string) (done func()) {
	ended := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = make(map[string]chan struct{})
	}
	p.running[id] = ended
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, id)
		close(ended)
	}
}

// await waits for the end of the Put of an item, if it runs in this process.
func (p *puts) await(id string) {
	p.mu.Lock()
	ended := p.running[id]
	p.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

const (
	maxRejectedPuts = 10_000
	rejectedTTL     = time.Hour
)

// reject records that an item was not accepted although it may be stored.
func (p *puts) reject(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rejected == nil {
		p.rejected = make(map[string]time.Time)
	}
	if len(p.rejected) < maxRejectedPuts {
		p.rejected[id] = time.Now()
	}
}

// isRejected reports whether this process rejected the item. The client received an error and may have sent the request again.
func (p *puts) isRejected(id string) bool {
	p.await(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, refused := p.rejected[id]
	return refused
}

// allRejected returns the items rejected within rejectedTTL.
func (p *puts) allRejected(now time.Time) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.rejected, func(_ string, at time.Time) bool { return now.Sub(at) > rejectedTTL })
	return slices.Collect(maps.Keys(p.rejected))
}

// removeRejected removes items that were stored although they were rejected.
func (q *Queue) removeRejected(s *session, now time.Time) {
	for _, id := range q.puts.allRejected(now) {
		if a := s.index.claim(id); a != nil {
			q.removeOne(a)
		}
	}
}

// removeOne removes a rejected item.
func (q *Queue) removeOne(a *activeDelivery) {
	q.log.Warn("queue item removed: its request received 503", "queue_item", a.id, "rule", a.rule)
	q.finishRemoved(a, &itemState{state: Cancelled})
}

// MaxItem returns the maximum stored size of an item in bytes.
func (q *Queue) MaxItem() int {
	if s := q.current.Load(); s != nil {
		return s.maxItem
	}
	return q.cfg.MaxItem
}

// HasPending reports whether the index contains earlier items of the key that are not done, under a rule with ordered delivery.
// Items that wait because the queue is not writable are included.
func (q *Queue) HasPending(rule, key string) bool {
	x := q.known.Load()
	return x != nil && x.hasPending(subqueueID{rule, key, true})
}

// Err returns the reason why the queue accepts no items, or nil if it does.
func (q *Queue) Err() error {
	if s := q.current.Load(); s != nil {
		if err := s.silentSince.Load(); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, *err)
		}
		return nil
	}
	if why := q.why.Load(); why != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, *why)
	}
	return ErrUnavailable
}

// Counts are the numbers of items, and of events in this process.
type Counts struct {
	Queued, Delivering, Dead int64
	Ended                    int64         // stored results of done and cancelled items
	Bytes                    int64         // size of items that have not ended
	Oldest                   time.Duration // since the oldest queued or delivering item was accepted
	Up                       bool          // the queue is writable

	// Number of events since the start of this process.
	Accepted, Rejected, Delivered, Failed, DeadLettered, Denied, Cancelled, Requeued, Lost int64
}

// Counts returns the current counts.
func (q *Queue) Counts(ctx context.Context) Counts {
	t := &q.stats
	c := Counts{
		Accepted: t.accepted.Load(), Rejected: t.rejected.Load(), Delivered: t.delivered.Load(), Failed: t.failed.Load(),
		DeadLettered: t.deadLettered.Load(), Denied: t.denied.Load(), Cancelled: t.cancelled.Load(), Requeued: t.requeued.Load(), Lost: t.lost.Load(),
	}
	if x := q.known.Load(); x != nil {
		x.count(&c, time.Now()) // the index is valid also while the queue is not writable
	}
	s := q.current.Load()
	if s == nil || q.Err() != nil {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if info, err := s.results.Info(ctx); err == nil {
		c.Up, c.Ended = true, int64(info.State.Msgs)
	}
	return c
}

// shared reports whether other processes may use the same streams.
func (q *Queue) shared() bool { return q.cfg.URL != "" }

func (q *Queue) subject(kind, id string) string { return q.cfg.Name + ".queue." + kind + "." + id }

// idOf returns the last token of a subject.
func idOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// wake makes a waiting worker poll the index.
func (q *Queue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}
