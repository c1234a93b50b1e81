package queue

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/goroutines"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

type natsMsg = nats.Msg

// Config is how a queue is kept. Directory or URL is required.
type Config struct {
	Directory string // of the server in this process
	URL       string // of a server outside, or several with commas
	// For a server outside.
	CredentialsFile, CA, Cert, Key string
	Name                           string // of the streams, in front. "": sluice

	EncryptionKey []byte // AES-256; nil: nothing is encrypted
	MaxBytes      int64  // of all items. 0: 1 GiB
	MaxCount      int64  // of them. 0: 100,000
	// MaxKeyBytes and MaxKeyCount bound the items of one rule and key, or, if there is no key, of one client address. 0: not
	// bounded
	MaxKeyBytes, MaxKeyCount int64
	MaxItem                  int           // bytes of one. 0: 1 MiB; a server outside may have a smaller bound
	MaxResults               int64         // bytes of results; the oldest are dropped first. 0: 256 MiB
	DeadLetterTTL            time.Duration // how long dead items are kept. 0: until somebody removes them

	Workers  int           // how many are delivered at a time. 0: 16
	Timeout  time.Duration // of one delivery. 0: a minute
	ClaimTTL time.Duration // after which others deliver what a lost gateway had begun. 0: 30 s
	Drain    time.Duration // how long deliveries may go on when the process ends. 0: 10 s

	// MinFreeDisk is how much room of the disk is left for what becomes of items: with less, none is accepted. 0: 32 MiB
	MinFreeDisk int64

	// MinBackoff and MaxBackoff bound the time after an attempt that failed. 0: 1 s, and 5 minutes.
	MinBackoff, MaxBackoff time.Duration

	// Delivers says that this process calls Next. Items whose time is over are ended by those that do.
	Delivers bool
	Log      *slog.Logger

	sweep time.Duration // how often it is looked after what nobody asks for
}

// MaxResult is how much of an answer's body is kept, in bytes.
const MaxResult = 64 << 10

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
	beside  goroutines.Group        // what Open and sessions do beside Run; ends with life
	woken   chan struct{}           // something may be to do
	sooner  chan struct{}           // an item expires before those that were known
	ending  atomic.Bool             // the process is to end
	why     atomic.Pointer[error]   // of the last session's end, or of what prevents the next

	life context.Context // ends when writing is given up: with Close, or when a drain takes too long
	end  context.CancelFunc
	// work ends when deliveries that are under way have had their time
	work     context.Context
	stopWork context.CancelFunc
	looking  sync.Mutex     // held by the worker that waits for the next item
	out      sync.WaitGroup // items that are handed out, and workers that ask for one

	place *place // nil: the server is outside
	// ledger has the items of the directory. Nil: the server is outside
	ledger *ledger

	mu            sync.Mutex // guards the following
	deliveries    map[string]*activeDelivery
	puts          map[string]chan struct{} // items that are being put; closed when that has ended
	rejectedPuts  map[string]time.Time     // items whose Put failed, and may be stored all the same
	diskCheckedAt time.Time                // at the disk
	diskLow       bool                     // it was nearly full then

	deadLoggedAt time.Time // when a dead item was logged
	deadUnlogged int       // how many were not since
}

type stats struct{ accepted, rejected, delivered, failed, deadLettered, denied, cancelled, requeued, lost atomic.Int64 }

func (c *Config) defaults() {
	c.Name = cmp.Or(c.Name, "sluice")
	c.MaxBytes = cmp.Or(c.MaxBytes, 1<<30)
	c.MaxCount = cmp.Or(c.MaxCount, 100_000)
	c.MaxItem = cmp.Or(c.MaxItem, 1<<20)
	c.MaxResults = cmp.Or(c.MaxResults, 256<<20)
	c.Workers = cmp.Or(c.Workers, 16)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.ClaimTTL = cmp.Or(c.ClaimTTL, 30*time.Second)
	c.MinFreeDisk = cmp.Or(c.MinFreeDisk, 32<<20)
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	c.MinBackoff = cmp.Or(c.MinBackoff, time.Second)
	c.MaxBackoff = max(cmp.Or(c.MaxBackoff, 5*time.Minute), c.MinBackoff)
	c.sweep = cmp.Or(c.sweep, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
}

// Open opens a queue. What a full disk or a lost network prevents is done by Run, as soon as it can be; until then nothing
// is accepted.
func Open(cfg Config) (*Queue, error) {
	cfg.defaults()
	if (cfg.Directory == "") == (cfg.URL == "") {
		return nil, errors.New("queue: give it a directory, or the url of NATS servers")
	}
	if cfg.URL != "" {
		if err := Check(cfg); err != nil {
			return nil, err
		}
	}
	q := &Queue{
		cfg: cfg, log: cfg.Log, owner: newID(), broken: make(chan *session, 1), woken: make(chan struct{}, 1), sooner: make(chan struct{}, 1),
		deliveries: make(map[string]*activeDelivery), puts: make(map[string]chan struct{}), rejectedPuts: make(map[string]time.Time),
	}
	q.life, q.end = context.WithCancel(context.Background())
	q.work, q.stopWork = context.WithCancel(q.life)
	var err error
	if q.cipher, err = newCipher(cfg.EncryptionKey); err != nil {
		return nil, err
	}
	if cfg.Directory != "" {
		if q.place, err = openPlace(cfg.Directory, cfg.Name); err != nil {
			return nil, err
		}
		if q.ledger, err = openLedger(q.place.own, q.log); err != nil {
			_ = q.Close()
			return nil, err
		}
	}
	opened := make(chan error, 1)
	q.beside.Go(func() { opened <- q.open(q.life) })
	var late <-chan time.Time
	if q.shared() {
		late = time.After(openIn)
	}
	select {
	case err := <-opened:
		if err != nil && !q.isTransient(err) {
			_ = q.Close()
			return nil, err
		}
		q.opened(err)
	case <-late:
		err := fmt.Errorf("no answer within %v", openIn)
		q.why.Store(&err)
		q.log.Warn("queue unavailable: the NATS server does not answer, still connecting", "error", err)
		q.beside.Go(func() { q.opened(<-opened) })
	}
	return q, nil
}

// openIn is how long the start waits for a server outside.
const openIn = 2 * time.Second

// opened notes how the first attempt ended. After a failed one Run makes the next.
func (q *Queue) opened(err error) {
	if err == nil {
		return
	}
	q.why.Store(&err)
	q.log.Error("the queue cannot be opened, so that nothing is kept: trying again until it can", "error", err)
	select {
	case q.broken <- nil:
	case <-q.life.Done():
	}
}

// isTransient reports whether the error may be mended from outside, without a change of the configuration.
func (q *Queue) isTransient(err error) bool {
	var wrong *keyError
	if errors.As(err, &wrong) || errors.Is(err, os.ErrNotExist) {
		return false
	}
	return q.cfg.URL != "" || errors.Is(err, syscall.ENOSPC)
}

// open connects and reads what there is.
func (q *Queue) open(ctx context.Context) error {
	if q.cfg.Directory != "" {
		if err := q.place.same(); err != nil {
			return err
		}
		if err := writable(q.place.own); err != nil {
			return fmt.Errorf("queue: %s cannot be written: %w", q.cfg.Directory, err)
		}
	}
	s, err := q.connect(ctx)
	if err != nil {
		return err
	}
	if err := s.follow(ctx, q); err != nil {
		s.close()
		return err
	}
	if err := q.countLost(ctx, s); err != nil {
		s.close()
		return err
	}
	q.removeOrphanedStates(ctx, s)
	if s.place != nil {
		s.place.begin()
	}
	q.known.Store(s.index)
	q.current.Store(s)
	for _, w := range s.watches {
		q.beside.Go(func() {
			select {
			case <-w.Closed(): // with the session
				q.sessionFailed(s, errors.New("what changes is not told any more"))
			case <-q.life.Done():
			}
		})
	}
	q.wake()
	return nil
}

// Close ends what Open began. Run must have returned.
func (q *Queue) Close() error {
	q.end()
	if s := q.current.Swap(nil); s != nil {
		s.close()
	}
	q.beside.Close()
	q.ledger.close()
	if q.place != nil {
		return q.place.close()
	}
	return nil
}

// shared tells whether other processes may use the same streams.
func (q *Queue) shared() bool { return q.cfg.URL != "" }

func (q *Queue) subject(kind, id string) string { return q.cfg.Name + ".queue." + kind + "." + id }

// wake has the dispatcher look again.
func (q *Queue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

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
	if !q.hasDiskSpace() {
		return fmt.Errorf("%w: its disk is nearly full", ErrUnavailable)
	}
	subject := q.subject("item", it.ID)
	data := q.cipher.encrypt(subject, encodeItem(it))
	o := itemHeader{it.Rule, it.Key, it.Ordered, it.Accepted, it.Expires, it.Attempts, it.Results, len(data), ""}
	if it.Key == "" && it.Client.IsValid() {
		o.client = string(keyenc.AppendAddr(nil, it.Client, 64))
	}
	head := base64.StdEncoding.EncodeToString(q.cipher.encrypt(subject, o.encode()))
	if len(data) > s.maxItem || len(head) > roomForHeaders/2 {
		return fmt.Errorf("%w: it has %d bytes, and %d is the most", ErrTooLarge, len(data), s.maxItem)
	}
	m := &natsMsg{Subject: subject, Data: data, Header: nats.Header{itemHeaderField: {head}}}
	// Who leaves while it is written does not stop that: it would only be unknown whether it was.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if !s.index.announce(it.ID, &o) {
		return ErrShareFull
	}
	defer q.putting(it.ID)()
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
		q.rejectPut(it.ID)
	}
	q.fault(s, err)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// putting says that an item is being put, until the function that it returns is called.
func (q *Queue) putting(id string) (done func()) {
	ended := make(chan struct{})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.puts[id] = ended
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.puts, id)
		close(ended)
	}
}

const (
	maxRejectedPuts = 10_000
	rejectedTTL     = time.Hour
)

// rejectPut notes that an item was not accepted though it may be stored.
func (q *Queue) rejectPut(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.rejectedPuts) < maxRejectedPuts {
		q.rejectedPuts[id] = time.Now()
	}
}

// awaitPut waits until the item's Put has ended, if this process puts it.
func (q *Queue) awaitPut(id string) {
	q.mu.Lock()
	ended := q.puts[id]
	q.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// isRejected reports whether this process did not accept the item. The client was told so, and may have sent the request
// again.
func (q *Queue) isRejected(id string) bool {
	q.awaitPut(id)
	q.mu.Lock()
	defer q.mu.Unlock()
	_, refused := q.rejectedPuts[id]
	return refused
}

// removeRejected removes items that were stored though they were not accepted.
func (q *Queue) removeRejected(s *session, now time.Time) {
	q.mu.Lock()
	maps.DeleteFunc(q.rejectedPuts, func(_ string, at time.Time) bool { return now.Sub(at) > rejectedTTL })
	all := slices.Collect(maps.Keys(q.rejectedPuts))
	q.mu.Unlock()
	for _, id := range all {
		if a := s.index.claim(id); a != nil {
			q.removeOne(a)
		}
	}
}

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

// diskCheckTTL is how long the last measurement of the disk is used.
const diskCheckTTL = 100 * time.Millisecond

// hasDiskSpace reports whether the disk has some. Without it nothing could be delivered either: that is written too.
func (q *Queue) hasDiskSpace() bool {
	if q.cfg.Directory == "" {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); now.Sub(q.diskCheckedAt) > diskCheckTTL {
		free, known := freeBytes(q.place.own)
		q.diskCheckedAt, q.diskLow = now, known && free < q.cfg.MinFreeDisk
	}
	return !q.diskLow
}

// codeFull is what a stream answers that could not store a message.
const codeFull = 10077

// isLimit tells a stream that is full from one whose disk is.
func isLimit(text string) bool { return text == maxBytesText || text == "maximum messages exceeded" }

const maxBytesText = "maximum bytes exceeded"
