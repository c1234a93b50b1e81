package queue

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// place is the directory of the embedded server: a private subdirectory of the configured directory, which may be accessible to
// all users, as an emptyDir volume is.
type place struct {
	own    string
	blocks string   // directory of the blocks of the items stream
	lock   *os.File // lock file in own

	mu      sync.Mutex // guards the following
	highest int        // number of the newest known block
}

// ownName is the name of the subdirectory.
const ownName = "sluice"

// openPlace creates the directory if it does not exist, and locks it against other processes.
func openPlace(given, name string) (*place, error) {
	p := &place{own: filepath.Join(given, ownName)}
	p.blocks = filepath.Join(streamPath(p.own, name+"-items"), "msgs")
	if err := plainfile.Mkdir(given, 0o700); err != nil {
		return nil, fmt.Errorf("queue: directory: %w", err)
	}
	if err := os.Mkdir(p.own, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("queue: directory: %w", plainfile.ExplainWrite(p.own, err))
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

// streamPath returns the directory of a stream.
func streamPath(own, stream string) string {
	return filepath.Join(own, "jetstream", "$G", "streams", stream)
}

// checkOwn returns an error if the directory cannot be used.
func checkOwn(own string) (os.FileInfo, error) {
	info, err := os.Lstat(own)
	switch {
	case err != nil:
		return nil, fmt.Errorf("queue: directory: %w", plainfile.ExplainWrite(own, err))
	case !info.IsDir():
		return nil, fmt.Errorf("queue: %s is not a directory: remove it, or set queue.directory to another", own)
	case !isOurs(info):
		return nil, fmt.Errorf("queue: %s belongs to another user: remove it, or set queue.directory to another", own)
	}
	return info, nil
}

func (p *place) close() error { return p.lock.Close() }

// begin resets the blocks of the previous session.
func (p *place) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.highest = 0
}

// same returns an error if the path no longer refers to the locked directory: data written to that directory would not be found
// after a restart.
func (p *place) same() error {
	now, err := os.Stat(p.lock.Name())
	if err != nil {
		return fmt.Errorf("queue: directory %s was removed, moved or emptied: restore it, or restart with an empty queue: %w", p.own, err)
	}
	locked, err := p.lock.Stat()
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if !os.SameFile(now, locked) {
		return fmt.Errorf("queue: directory %s was replaced: restore it, or restart to use the new one", p.own)
	}
	return nil
}

// present returns an error if a restart would not find the streams.
func (p *place) present() error {
	if err := p.same(); err != nil {
		return err
	}
	if _, err := os.Stat(p.blocks); err != nil {
		return fmt.Errorf("queue: blocks of the stream were removed: %w", err)
	}
	return nil
}

// check returns an error if a restart would not find the block of the last write.
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
	// This is the first block, or the block was removed after all its items were. Then there is a newer one.
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

// diskCheckTTL is the time for which a measurement of the free disk space is used.
const diskCheckTTL = 100 * time.Millisecond

// diskSpace caches the measurement of the free disk space.
type diskSpace struct {
	mu        sync.Mutex // guards the following
	checkedAt time.Time
	low       bool // the disk was nearly full
}

// has reports whether the disk of a directory has free bytes available. They are reserved for deliveries, which write to the
// disk too.
func (s *diskSpace) has(directory string, free int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.checkedAt) > diskCheckTTL {
		found, known := freeBytes(directory)
		s.checkedAt, s.low = now, known && found < free
	}
	return !s.low
}

// ledger is a list of the items in the directory, separate from the streams. It is necessary because JetStream starts with the
// blocks that exist, so that a missing block would not be detected.
//
// An item is added after it was stored, and its end is added before it is removed from the stream. So an item of the ledger
// that is not in the stream was lost, even if the process was killed at any time. The file is not synced with each record:
// after a power failure the newest records may be missing.
type ledger struct {
	root *os.Root // the directory, also after it is moved
	log  *slog.Logger

	mu      sync.Mutex // guards the following
	live    map[itemID]time.Time
	file    *os.File // nil: not created yet, or not writable
	failed  bool     // writing failed, and that was logged
	found   bool     // the file existed at the start of the process
	records int      // number of records in the file
	synced  bool     // no record was added since the last sync
}

const (
	ledgerName = "accepted"
	// ledgerRecord is the size of a record in bytes: ID of the item, time of acceptance (0: the item has ended) and checksum. The
	// page size is a multiple of it, so that a killed process leaves no partial record.
	ledgerRecord = 32
	// ledgerSlack is the number of records of ended items, in addition to the number of items, at which the file is rewritten.
	ledgerSlack = 4096
	maxLedger   = 1 << 30 // bytes
)

// openLedger reads the ledger of a directory, which need not exist.
func openLedger(directory string, log *slog.Logger) (*ledger, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	l := &ledger{root: root, log: log}
	b, err := plainfile.Read(l.path(), maxLedger)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = root.Close()
		return nil, fmt.Errorf("queue: %w", err)
	}
	l.found = err == nil
	bad := 0
	if l.live, bad = readLedger(b); bad > 0 {
		log.Error("queue ledger corrupt: loss of these items cannot be detected", "file", l.path(), "records", bad)
	}
	return l, nil
}

func (l *ledger) path() string { return filepath.Join(l.root.Name(), ledgerName) }

// add records that an item was stored.
func (l *ledger) add(id string, accepted time.Time) { l.record(id, accepted) }

// end records that an item is about to be removed.
func (l *ledger) end(id string) { l.record(id, time.Time{}) }

func (l *ledger) record(name string, accepted time.Time) {
	id, ok := parseID(name)
	if l == nil || !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if accepted.IsZero() {
		if _, ok := l.live[id]; !ok {
			return
		}
		delete(l.live, id)
	} else {
		l.live[id] = accepted
	}
	if l.file == nil {
		return
	}
	if _, err := l.file.Write(appendRecord(nil, id, accepted)); err != nil {
		l.fail(err)
		return
	}
	l.records, l.synced = l.records+1, false
}

// all returns the items that have not ended.
func (l *ledger) all() map[itemID]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.live)
}

// reconcile removes lost items, adds those of the stream and rewrites the file. It reports whether there was no file.
func (l *ledger) reconcile(lost []itemID, stored map[itemID]time.Time) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range lost {
		delete(l.live, id)
	}
	maps.Copy(l.live, stored)
	l.rewrite()
	first, l.found = !l.found, true
	return first
}

// keep syncs the file. It rewrites a file that has grown too large or could not be written.
func (l *ledger) keep() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.file == nil || l.records > 2*len(l.live)+ledgerSlack:
		l.rewrite()
	case !l.synced:
		if err := l.file.Sync(); err != nil {
			l.fail(err)
			return
		}
		l.synced = true
	}
}

func (l *ledger) rewrite() {
	b := make([]byte, 0, len(l.live)*ledgerRecord)
	for id, accepted := range l.live {
		b = appendRecord(b, id, accepted)
	}
	const name = ledgerName + ".new"
	f, err := l.root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		l.fail(err)
		return
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.root.Rename(name, ledgerName)
	}
	if err != nil {
		_ = f.Close()
		l.fail(errors.Join(err, l.root.Remove(name)))
		return
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.records, l.synced, l.failed = f, len(l.live), true, false
}

// fail removes a file that is out of date, because ended items would be reported as lost. keep writes it again.
func (l *ledger) fail(err error) {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
	if removed := l.root.Remove(ledgerName); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if !l.failed {
		l.log.Error("queue ledger write failed: loss of items cannot be detected", "file", l.path(), "error", err)
	}
	l.failed = true
}

// pause closes the file until reconcile rewrites it, because a file system with files open for writing cannot be remounted
// read-only. Nothing is written to the streams in this time.
func (l *ledger) pause() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Sync()
		_ = l.file.Close()
		l.file = nil
	}
}

func (l *ledger) close() {
	if l != nil {
		l.pause()
		_ = l.root.Close()
	}
}

func appendRecord(b []byte, id itemID, accepted time.Time) []byte {
	start := len(b)
	b = append(b, id[:]...)
	ms := int64(0)
	if !accepted.IsZero() {
		ms = accepted.UnixMilli()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(ms))
	return binary.BigEndian.AppendUint64(b, uint64(crc32.ChecksumIEEE(b[start:])))
}

// readLedger returns the items that have not ended and the number of invalid records.
func readLedger(b []byte) (live map[itemID]time.Time, bad int) {
	live = make(map[itemID]time.Time)
	for ; len(b) >= ledgerRecord; b = b[ledgerRecord:] {
		if binary.BigEndian.Uint64(b[24:]) != uint64(crc32.ChecksumIEEE(b[:24])) {
			bad++
			continue
		}
		id := itemID(b[:16])
		if ms := int64(binary.BigEndian.Uint64(b[16:])); ms == 0 {
			delete(live, id)
		} else {
			live[id] = time.UnixMilli(ms).UTC()
		}
	}
	if len(b) > 0 {
		bad++
	}
	return live, bad
}

type itemID [16]byte

func parseID(id string) (out itemID, ok bool) {
	n, err := hex.Decode(out[:], []byte(id[:min(len(id), 2*len(out))]))
	return out, err == nil && n == len(out)
}

func (id itemID) String() string { return hex.EncodeToString(id[:]) }
