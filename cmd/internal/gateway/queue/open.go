package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// Config configures a queue. Directory or URL is required.
type Config struct {
	Directory string // of the embedded server
	URL       string // of an external server, or several separated by commas
	// For an external server.
	CredentialsFile, CA, Cert, Key string
	Name                           string // prefix of the streams; "": sluice

	EncryptionKey []byte // AES-256; nil: without encryption
	MaxBytes      int64  // maximum total size of all items; 0: 1 GiB
	MaxCount      int64  // maximum number of items; 0: 100,000
	// MaxKeyBytes and MaxKeyCount bound the items of one rule and key or, without a key, of one client address; 0: unbounded.
	MaxKeyBytes, MaxKeyCount int64
	MaxItem                  int           // maximum size of an item in bytes; 0: 1 MiB. An external server may have a smaller bound
	MaxResults               int64         // maximum total size of results in bytes; the oldest are dropped first. 0: 256 MiB
	DeadLetterTTL            time.Duration // 0: dead letters do not expire

	Workers  int           // maximum concurrent deliveries; 0: 16
	Timeout  time.Duration // of one delivery; 0: 1 min
	ClaimTTL time.Duration // after which another gateway delivers an item of a crashed one; 0: 30 s
	Drain    time.Duration // maximum time for deliveries in flight during shutdown; 0: 10 s

	// MinFreeDisk is the free disk space reserved for states and results, in bytes: with less, no item is accepted. 0: 32 MiB
	MinFreeDisk int64

	// MinBackoff and MaxBackoff bound the time after a failed attempt; 0: 1 s and 5 min.
	MinBackoff, MaxBackoff time.Duration

	// Delivers must be set if this process calls Next. Only such processes end expired items.
	Delivers bool
	Log      *slog.Logger

	sweep time.Duration // interval of health checks of the server and of cleaning the index
}

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

// Open opens a queue. If the disk is full or the network fails, Run retries; until it succeeds nothing is accepted.
func Open(cfg Config) (*Queue, error) {
	cfg.defaults()
	if (cfg.Directory == "") == (cfg.URL == "") {
		return nil, errors.New("queue: set queue.directory, or queue.url of NATS servers")
	}
	if cfg.URL != "" {
		if err := Check(cfg); err != nil {
			return nil, err
		}
	}
	q := &Queue{
		cfg: cfg, log: cfg.Log, owner: newID(), broken: make(chan *session, 1), woken: make(chan struct{}, 1), sooner: make(chan struct{}, 1),
		deliveries: make(map[string]*activeDelivery),
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
		err := fmt.Errorf("no reply within %v", openIn)
		q.why.Store(&err)
		q.log.Warn("queue unavailable: connecting to NATS failed", "error", err)
		q.beside.Go(func() { q.opened(<-opened) })
	}
	return q, nil
}

// openIn is the maximum time that Open waits for an external server.
const openIn = 2 * time.Second

// opened handles the result of the first attempt. After a failure Run makes the next one.
func (q *Queue) opened(err error) {
	if err == nil {
		return
	}
	q.why.Store(&err)
	q.log.Error("opening the queue failed: requests are not queued", "error", err)
	select {
	case q.broken <- nil:
	case <-q.life.Done():
	}
}

// isTransient reports whether the error may be resolved without a change of the configuration.
func (q *Queue) isTransient(err error) bool {
	var wrong *keyError
	if errors.As(err, &wrong) || errors.Is(err, os.ErrNotExist) {
		return false
	}
	return q.cfg.URL != "" || errors.Is(err, syscall.ENOSPC)
}

// Close closes the queue. Run must have returned.
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

// Check returns the errors that [Open] would return for files and directories, without creating anything.
func Check(cfg Config) error {
	if cfg.URL != "" {
		_, err := cfg.outside(context.Background())
		return err
	}
	own := filepath.Join(cfg.Directory, ownName)
	if _, err := checkOwn(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := plainfile.CheckMkdir(own); err != nil {
		return fmt.Errorf("queue: directory: %w", err)
	}
	return cfg.checkKey(own)
}

// checkKey returns an error if the items in the directory were written with another key. It reads the metadata of the streams
// that the embedded server stores; unreadable metadata is reported by [Open].
func (c Config) checkKey(own string) error {
	seal, err := newCipher(c.EncryptionKey)
	if err != nil {
		return err
	}
	c.defaults()
	name := c.Name + "-items"
	data, err := plainfile.Read(filepath.Join(streamPath(own, name), "meta.inf"), 1<<20)
	var stored struct {
		Metadata map[string]string `json:"metadata"`
	}
	if err != nil || json.Unmarshal(data, &stored) != nil {
		return nil
	}
	return seal.check(name, stored.Metadata)
}

// open connects and reads all items.
func (q *Queue) open(ctx context.Context) error {
	if q.cfg.Directory != "" {
		if err := q.place.same(); err != nil {
			return err
		}
		if err := writable(q.place.own); err != nil {
			return fmt.Errorf("queue: %s is not writable: %w", q.cfg.Directory, err)
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
			case <-w.Closed(): // also closed with the session
				q.sessionFailed(s, errors.New("consumer of a stream ended"))
			case <-q.life.Done():
			}
		})
	}
	q.wake()
	return nil
}

// writable returns an error if data cannot be written to the directory. It is called before the server is started.
func writable(directory string) error {
	f, err := os.OpenFile(filepath.Join(directory, "probe"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 256<<10))
	err = errors.Join(err, f.Sync(), f.Close())
	return errors.Join(err, os.Remove(f.Name()))
}

// countLost counts and logs items that were accepted and are neither in the stream nor ended, because blocks were removed,
// emptied or truncated, now or while no process ran, or are unreadable. It must be called before anything is written or removed
// after the session has read all items.
func (q *Queue) countLost(ctx context.Context, s *session) error {
	if s.place == nil {
		return nil
	}
	stored, l := s.index.accepted(), q.ledger
	info, err := s.items.Info(ctx)
	if err != nil {
		return wrap(err)
	}
	s.unreadableAtStart = info.State.Msgs - min(info.State.Msgs, s.itemsReceived.Load())
	var lost []itemID
	var first, last time.Time
	ended := 0
	for id, accepted := range l.all() {
		if _, ok := stored[id]; ok || q.isDelivering(id.String()) {
			continue
		}
		// The item may have ended, and the record of the ledger may have been lost in a power failure.
		if _, err := q.last(ctx, s.results, "result", id.String()); err == nil {
			ended++
			continue
		} else if !errors.Is(err, ErrNotFound) {
			return err
		}
		if lost = append(lost, id); len(lost) == 1 || accepted.Before(first) {
			first = accepted
		}
		if accepted.After(last) {
			last = accepted
		}
	}
	if ended > 0 {
		q.log.Info("queue items ended without a ledger record", "items", ended)
	}
	n := len(lost)
	if l.reconcile(lost, stored) {
		n = int(s.unreadableAtStart) // the queue was written without a ledger
	}
	if n > 0 {
		q.stats.lost.Add(int64(n))
		q.log.Error("queue items lost: blocks of the queue are corrupt or were removed", "items", n,
			"accepted_from", first, "accepted_until", last, "queue_items", fmt.Sprint(lost[:min(len(lost), 10)]), "directory", s.place.own)
	}
	return nil
}

// accepted returns the items of the stream, unreadable ones included, with their times of acceptance.
func (x *index) accepted() map[itemID]time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[itemID]time.Time, len(x.all)+len(x.unread))
	for name := range x.unread {
		if id, ok := parseID(name); ok {
			out[id] = time.Now()
		}
	}
	for name, e := range x.all {
		if id, ok := parseID(name); ok {
			out[id] = e.accepted
		}
	}
	return out
}

// removeOrphanedStates removes states without items.
func (q *Queue) removeOrphanedStates(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	for id, seq := range s.index.orphanedStates() {
		if _, err := q.last(ctx, s.items, "item", id); errors.Is(err, ErrNotFound) {
			_ = s.states.DeleteMsg(ctx, seq)
			s.index.drop(id)
		}
	}
}

// orphanedStates returns states without items, left by a process that crashed during a removal.
func (x *index) orphanedStates() map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]uint64, len(x.orphanStates))
	for id, s := range x.orphanStates {
		out[id] = s.stateSeq
	}
	return out
}
