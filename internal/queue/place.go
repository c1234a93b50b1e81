package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	if err := os.MkdirAll(given, 0o700); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if err := os.Mkdir(p.own, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("queue: %w", err)
	}
	info, err := os.Lstat(p.own)
	switch {
	case err != nil:
		return nil, fmt.Errorf("queue: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("queue: %s is not a directory: remove it, or set queue.directory to another", p.own)
	case !isOurs(info):
		return nil, fmt.Errorf("queue: %s belongs to another user: remove it, or set queue.directory to another", p.own)
	case info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(p.own, 0o700); err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
	}
	if p.lock, err = lock(p.own); err != nil {
		return nil, err
	}
	return p, nil
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

// countLost counts and logs the items that were there and are not: in blocks that cannot be read, or removed while this
// process ran. Nothing may have been written or removed since the session has read all.
func (q *Queue) countLost(ctx context.Context, s *session) {
	if s.place == nil {
		return
	}
	lost := int64(0)
	if info, err := s.items.Info(ctx); err == nil {
		unreadable := int64(info.State.Msgs) - int64(s.heard.Load())
		if info.State.Lost != nil {
			unreadable = max(unreadable, int64(len(info.State.Lost.Msgs)))
		}
		lost = max(0, unreadable-q.unreadable)
		q.unreadable = unreadable
	}
	if before := q.known.Load(); before != nil {
		lost = max(lost, before.missing(s.index, q.isFlying))
	}
	if lost > 0 {
		q.stats.lost.Add(lost)
		q.log.Error("queued requests lost: blocks of the queue are corrupt or were removed", "items", lost, "directory", s.place.own)
	}
}

// missing counts the items of x that are not in other.
func (x *index) missing(other *index, flying func(id string) bool) (n int64) {
	x.mu.Lock()
	ids := make([]string, 0, len(x.all))
	for id, e := range x.all {
		if e.seq > 0 {
			ids = append(ids, id)
		}
	}
	x.mu.Unlock()
	for _, id := range ids {
		if !flying(id) && !other.has(id) {
			n++
		}
	}
	return n
}

func (x *index) has(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all[id] != nil
}
