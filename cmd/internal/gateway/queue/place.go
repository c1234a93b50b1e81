package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// place is where the server in this process stores its streams: a directory of its own inside the one that was given, which
// may be open to everybody, as an emptyDir volume is.
type place struct {
	given, own string
	blocks     string   // of the items' stream
	lock       *os.File // in own

	mu      sync.Mutex // guards the following
	highest int        // number of the newest block that was seen
}

// ownName is the directory's name.
const ownName = "sluice"

// openPlace makes the directory, or takes the one that is there, and keeps other processes out.
func openPlace(given, name string) (*place, error) {
	p := &place{given: given, own: filepath.Join(given, ownName)}
	p.blocks = filepath.Join(p.own, "jetstream", "$G", "streams", name+"-items", "msgs")
	if err := plainfile.Mkdir(given, 0o700); err != nil {
		return nil, fmt.Errorf("queue: directory: %w", err)
	}
	if err := os.Mkdir(p.own, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("queue: directory: %w", err)
	}
	info, err := checkOwn(p.own)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(p.own, 0o700); err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
	}
	if p.lock, err = lock(p.own); err != nil {
		return nil, err
	}
	return p, nil
}

// checkOwn returns an error unless the directory can be used.
func checkOwn(own string) (os.FileInfo, error) {
	info, err := os.Lstat(own)
	switch {
	case err != nil:
		return nil, fmt.Errorf("queue: directory: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("queue: %s is not a directory: remove it, or set queue.directory to another", own)
	case !isOurs(info):
		return nil, fmt.Errorf("queue: %s belongs to another user: remove it, or set queue.directory to another", own)
	}
	return info, nil
}

// Check returns the errors that [Open] would return for files and directories, and creates nothing.
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

// checkKey returns an error if the items in the directory were written with another key. It reads what the server in this
// process stores about its streams; what cannot be read there is found by [Open].
func (c Config) checkKey(own string) error {
	seal, err := newCipher(c.EncryptionKey)
	if err != nil {
		return err
	}
	c.defaults()
	name := c.Name + "-items"
	data, err := plainfile.Read(filepath.Join(own, "jetstream", "$G", "streams", name, "meta.inf"), 1<<20)
	var stored struct {
		Metadata map[string]string `json:"metadata"`
	}
	if err != nil || json.Unmarshal(data, &stored) != nil {
		return nil
	}
	return seal.check(name, stored.Metadata)
}

func (p *place) close() error { return p.lock.Close() }

// same returns an error if the directory's name no longer leads to the directory that was locked: what is written to that
// would not be found after a restart.
func (p *place) same() error {
	now, err := os.Stat(p.lock.Name())
	if err != nil {
		return fmt.Errorf("queue: directory %s was removed, moved or emptied: restore it, or restart to begin with an empty one: %w", p.own, err)
	}
	locked, err := p.lock.Stat()
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if !os.SameFile(now, locked) {
		return fmt.Errorf("queue: directory %s was replaced: restore it, or restart to use what is there now", p.own)
	}
	return nil
}

// begin forgets the blocks of the session before.
func (p *place) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.highest = 0
}

// present returns an error unless a restart would find the streams.
func (p *place) present() error {
	if err := p.same(); err != nil {
		return err
	}
	if _, err := os.Stat(p.blocks); err != nil {
		return fmt.Errorf("queue: blocks of the stream were removed: %w", err)
	}
	return nil
}

// check returns an error unless a restart would find the block that something was just written to.
func (p *place) check() error {
	if err := p.same(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.highest > 0 {
		if _, err := os.Stat(filepath.Join(p.blocks, strconv.Itoa(p.highest)+blockSuffix)); err == nil {
			return nil
		}
	}
	// It is the first, or the block was removed with all that was in it. Then there is a newer one.
	files, err := os.ReadDir(p.blocks)
	if err != nil {
		return fmt.Errorf("queue: blocks of the stream were removed: %w", err)
	}
	newest := 0
	for _, f := range files {
		if number, ok := strings.CutSuffix(f.Name(), blockSuffix); ok {
			n, _ := strconv.Atoi(number)
			newest = max(newest, n)
		}
	}
	if newest <= p.highest {
		return fmt.Errorf("queue: block %d of the stream was removed from %s", max(p.highest, 1), p.blocks)
	}
	p.highest = newest
	return nil
}

const blockSuffix = ".blk"

// countLost counts and logs the items that were accepted and are neither in the stream nor ended: blocks that were removed,
// emptied or truncated, now or while no process ran, or that cannot be read. Nothing may have been written or removed since
// the session has read all.
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
		// Its end may have been written, and the ledger's record of it lost with the power.
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
		q.log.Info("queue: items had ended without a record of it, as after a power failure", "items", ended)
	}
	n := len(lost)
	if l.reconcile(lost, stored) {
		n = int(s.unreadableAtStart) // it was written without a ledger
	}
	if n > 0 {
		q.stats.lost.Add(int64(n))
		q.log.Error("queued requests lost: blocks of the queue are corrupt or were removed", "items", n,
			"accepted_from", first, "accepted_until", last, "ids", fmt.Sprint(lost[:min(len(lost), 10)]), "directory", s.place.own)
	}
	return nil
}

// accepted returns the items of the stream, those that cannot be read included, and when they were accepted.
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
