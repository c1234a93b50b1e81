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

// Queue keeps requests.
type Queue struct {
	cfg    Config
	log    *slog.Logger
	owner  string // this process
	cipher *itemCipher
	stats  stats

	current atomic.Pointer[session] // nil: it cannot be written now
	known   atomic.Pointer[index]   // of the last session
	broken  chan *session           // sessions that failed
	woken   chan struct{}           // something may be to do
	sooner  chan struct{}           // an item expires before those that were known
	why     atomic.Pointer[error]   // of the last session's end, or of what prevents the next

	lifetime
	looking sync.Mutex // held by the worker that waits for the next item

	place  *place // nil: the server is outside
	disk   diskSpace
	ledger *ledger // of the items in the directory; nil: the server is outside

	puts    puts
	deadLog deadLog

	mu         sync.Mutex // guards the following, and that nothing is handed out once it is ending
	deliveries map[string]*activeDelivery
}

// lifetime is how long what a queue does goes on.
type lifetime struct {
	life     context.Context // ends when writing is given up: with Close, or when a drain takes too long
	end      context.CancelFunc
	work     context.Context // ends when deliveries that are under way have had their time
	stopWork context.CancelFunc
	ending   atomic.Bool      // the process is to end
	out      sync.WaitGroup   // items that are handed out, and workers that ask for one
	beside   goroutines.Group // what Open and sessions do beside Run; ends with life
}

type stats struct{ accepted, rejected, delivered, failed, deadLettered, denied, cancelled, requeued, lost atomic.Int64 }

// Put keeps an item. When it returns without an error the item is on disk.
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
		return fmt.Errorf("%w: its disk is nearly full", ErrUnavailable)
	}
	subject := q.subject("item", it.ID)
	data := q.cipher.encrypt(subject, encodeItem(it))
	o := itemHeader{it.Rule, it.Key, it.Ordered, it.Accepted, it.Expires, it.Attempts, it.Results, len(data), ""}
	if it.Key == "" && it.Client.IsValid() {
		o.client = string(keyenc.AppendAddr(nil, it.Client, 64))
	}
	head := q.cipher.sealHeader(subject, &o)
	if len(data) > s.maxItem || len(head) > roomForHeaders/2 {
		return fmt.Errorf("%w: it has %d bytes, and %d is the most", ErrTooLarge, len(data), s.maxItem)
	}
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{itemHeaderField: {head}}}
	// Who leaves while it is written does not stop that: it would only be unknown whether it was.
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
		return nil // the stream tells of it, in its order
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

// codeFull is what a stream answers that could not store a message.
const codeFull = 10077

// isLimit tells a stream that is full from one whose disk is.
func isLimit(text string) bool { return text == maxBytesText || text == "maximum messages exceeded" }

const maxBytesText = "maximum bytes exceeded"

// puts are the items that this process puts, and those that it did not accept. The zero puts are none.
type puts struct {
	mu       sync.Mutex               // guards the following
	running  map[string]chan struct{} // closed when the Put has ended
	rejected map[string]time.Time     // items whose Put failed, and may be stored all the same
}

// begin says that an item is being put, until the function that it returns is called.
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

// await waits until the item's Put has ended, if this process puts it.
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

// reject notes that an item was not accepted though it may be stored.
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

// isRejected reports whether this process did not accept the item. The client was told so, and may have sent the request
// again.
func (p *puts) isRejected(id string) bool {
	p.await(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, refused := p.rejected[id]
	return refused
}

// allRejected lists the items that were not accepted of late.
func (p *puts) allRejected(now time.Time) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.rejected, func(_ string, at time.Time) bool { return now.Sub(at) > rejectedTTL })
	return slices.Collect(maps.Keys(p.rejected))
}

// removeRejected removes items that were stored though they were not accepted.
func (q *Queue) removeRejected(s *session, now time.Time) {
	for _, id := range q.puts.allRejected(now) {
		if a := s.index.claim(id); a != nil {
			q.removeOne(a)
		}
	}
}

// removeOne removes such an item.
func (q *Queue) removeOne(a *activeDelivery) {
	q.log.Warn("queue item removed: it was stored though its request was answered 503", "id", a.id, "rule", a.rule)
	q.finishRemoved(a, &itemState{state: Cancelled})
}

// MaxItem returns the maximum size of an item as it is stored, in bytes.
func (q *Queue) MaxItem() int {
	if s := q.current.Load(); s != nil {
		return s.maxItem
	}
	return q.cfg.MaxItem
}

// HasPending reports whether earlier items of the key are still queued, under a rule that delivers them in order, as far as this
// process has heard. Items that wait because the queue cannot be written count too.
func (q *Queue) HasPending(rule, key string) bool {
	x := q.known.Load()
	return x != nil && x.hasPending(subqueueID{rule, key, true})
}

// Err returns why the queue accepts nothing, or nil.
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

// Counts say how full the queue is, and what this process has done.
type Counts struct {
	Queued, Delivering, Dead int64
	Ended                    int64         // done or cancelled, and their results still stored
	Bytes                    int64         // of what has not ended
	Oldest                   time.Duration // since the oldest item that has not ended and is not dead was accepted
	Up                       bool          // it can be written

	// Since this process started.
	Accepted, Rejected, Delivered, Failed, DeadLettered, Denied, Cancelled, Requeued, Lost int64
}

// Counts counts what there is.
func (q *Queue) Counts(ctx context.Context) Counts {
	t := &q.stats
	c := Counts{
		Accepted: t.accepted.Load(), Rejected: t.rejected.Load(), Delivered: t.delivered.Load(), Failed: t.failed.Load(),
		DeadLettered: t.deadLettered.Load(), Denied: t.denied.Load(), Cancelled: t.cancelled.Load(), Requeued: t.requeued.Load(), Lost: t.lost.Load(),
	}
	if x := q.known.Load(); x != nil {
		x.count(&c, time.Now()) // what waits is known though it cannot be written
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

// idOf is the last part of a subject.
func idOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// wake has the dispatcher look again.
func (q *Queue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}
