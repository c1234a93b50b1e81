package table

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// A snapshot is a magic line, a header, records and a checksum, all numbers little-endian:
//
//	magic   "sluice snapshot 2\n"
//	header  seed (4 words), time of saving, time until which there may be states of version 1
//	record  kind, segment, then by kind:
//	        slot:  tag, word, value
//	        wide:  tag, word, number of words, words
//	        block: tag, extra, until
//	        cells: band and row instead of the segment; until, width, cells
//	        rule:  length of the list instead of the segment; rule, and kind, slices, count, length, burst of each
//	        reset: number of resets of the rule instead of the segment; rule
//	end     kind 0, number of records
//	sum     SHA-256 of everything before
//
// Version 1, whose header ended with the time of saving and which had no records of rules, can be read: see
// [step.Known.Before].
//
// The checksum detects truncated and damaged files. It does not protect against an attacker who can write the file: a
// snapshot is trusted as much as the program's configuration.

const (
	snapshotMagic = "sluice snapshot 2\n"
	magicBefore   = "sluice snapshot 1\n" // has the same length
)

const (
	recordEnd = iota
	recordSlot
	recordWide
	recordBlock
	recordCells
	recordRule
	recordReset // unknown to earlier versions, which reject it
)

// ErrSnapshot is wrapped by errors about files that are truncated, damaged or no snapshots.
var ErrSnapshot = errors.New("invalid snapshot")

type snapshotWriter struct {
	w       *bufio.Writer // before the checksum, so that it hashes large pieces
	records uint64
	err     error
}

func (w *snapshotWriter) numbers(ns ...uint64) {
	var b [8]byte
	for _, n := range ns {
		binary.LittleEndian.PutUint64(b[:], n)
		if w.err == nil {
			_, w.err = w.w.Write(b[:])
		}
	}
}

// Save writes all live states. It locks the segments one after the other, so that each segment is consistent, but not
// the whole.
func (t *Table) Save(dst io.Writer, now int64) error {
	sum := sha256.New()
	w := &snapshotWriter{w: bufio.NewWriterSize(io.MultiWriter(dst, sum), 1<<16)}
	_, w.err = w.w.WriteString(snapshotMagic)
	w.numbers(t.seed[:]...)
	w.numbers(uint64(now), uint64(t.before))
	for i := range t.segments {
		t.saveSegment(w, i, now)
	}
	for rule, numbers := range t.Rules.All() { // after the states, so that it contains the numbers of all of them
		w.numbers(recordRule, uint64(len(numbers)), rule.A, rule.B)
		for _, n := range numbers {
			w.numbers(uint64(n.Kind), uint64(n.Slices), uint64(n.Count), uint64(n.Length), uint64(n.Burst))
		}
		w.records++
	}
	t.generations.each(func(rule group.RuleID, n uint64) {
		w.numbers(recordReset, n, rule.A, rule.B)
		w.records++
	})
	if t.sketch.busy(now) {
		for i := range uint64(bands * rows) {
			w.numbers(recordCells, i, uint64(t.sketch.until.Load()), t.sketch.width)
			for j := range t.sketch.width {
				w.numbers(t.sketch.cells[i*t.sketch.width+j].Load())
			}
			w.records++
		}
	}
	w.numbers(recordEnd, w.records)
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err == nil {
		_, w.err = dst.Write(sum.Sum(nil))
	}
	return w.err
}

func (t *Table) saveSegment(w *snapshotWriter, i int, now int64) {
	seg := &t.segments[i]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	for j := range seg.slots.len {
		s := seg.slots.at(j)
		switch {
		case s.tag == 0 || s.expiresAt() <= now:
			continue
		case s.word&wideFlag != 0:
			words := t.arena.words(ref(s.value))
			w.numbers(recordWide, uint64(i), s.tag, s.word, uint64(len(words)))
			w.numbers(words...)
		default:
			w.numbers(recordSlot, uint64(i), s.tag, s.word, s.value)
		}
		w.records++
	}
	if seg.rare == nil {
		return
	}
	for _, b := range seg.rare.blocks {
		if b.until > now {
			w.numbers(recordBlock, uint64(i), b.tag, b.extra, uint64(b.until))
			w.records++
		}
	}
}

type snapshotReader struct {
	r       *bufio.Reader
	sum     hash.Hash
	pending []byte // read and not yet hashed
	err     error
}

func (r *snapshotReader) read(b []byte) {
	if r.err != nil {
		return
	}
	if _, r.err = io.ReadFull(r.r, b); r.err != nil {
		return
	}
	if r.pending = append(r.pending, b...); len(r.pending) >= 1<<15 {
		r.sum.Write(r.pending)
		r.pending = r.pending[:0]
	}
}

func (r *snapshotReader) number() uint64 {
	var b [8]byte
	r.read(b[:])
	if r.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// Load reads a snapshot into a new table. It returns an error unless the snapshot is complete and undamaged.
func Load(src io.Reader, c Config, now int64) (*Table, error) {
	r := &snapshotReader{r: bufio.NewReaderSize(src, 1<<16), sum: sha256.New()}
	magic := make([]byte, len(snapshotMagic))
	if r.read(magic); string(magic) != snapshotMagic && string(magic) != magicBefore {
		return nil, fmt.Errorf("%w: file does not begin with %q", ErrSnapshot, snapshotMagic)
	}
	var seed Seed
	for i := range seed {
		seed[i] = r.number()
	}
	saved := r.number()
	c.Seed = &seed
	t := New(c)
	t.SavedAt = int64(saved)
	if string(magic) == magicBefore {
		t.before = math.MaxInt64
	} else {
		t.before = int64(r.number())
	}
	var records uint64
	into := loader{t: t, now: now}
	for {
		kind := r.number()
		if r.err != nil {
			return nil, fmt.Errorf("%w: after %d records: %w", ErrSnapshot, records, r.err)
		}
		if kind == recordEnd {
			break
		}
		if err := into.record(r, kind); err != nil {
			return nil, fmt.Errorf("record %d: %w", records, err)
		}
		records++
	}
	if err := into.flush(); err != nil {
		return nil, err
	}
	t.before = min(t.before, into.latest)
	if n := r.number(); n != records {
		return nil, fmt.Errorf("%w: file has %d records, and its trailer says %d", ErrSnapshot, records, n)
	}
	r.sum.Write(r.pending)
	want, got := r.sum.Sum(nil), make([]byte, sha256.Size)
	if r.read(got); r.err != nil || !bytes.Equal(got, want) {
		return nil, fmt.Errorf("%w: wrong checksum", ErrSnapshot)
	}
	if _, err := r.r.ReadByte(); err != io.EOF {
		return nil, fmt.Errorf("%w: data after the end", ErrSnapshot)
	}
	return t, nil
}

// loader collects the slots of a segment, which are contiguous, and inserts them together: inserted one by one they
// might not fit where all of them did.
type loader struct {
	t       *Table
	now     int64
	segment uint64
	slots   []slot
	latest  int64 // time at which the last of them expires
}

func (l *loader) record(r *snapshotReader, kind uint64) error {
	index := r.number()
	if kind == recordCells {
		return l.t.loadCells(r, index, l.now)
	}
	if kind == recordRule {
		return l.t.loadRule(r, index)
	}
	if kind == recordReset {
		l.t.generations.set(group.RuleID{A: r.number(), B: r.number()}, func(uint64) uint64 { return index })
		return nil
	}
	if index >= segments {
		return fmt.Errorf("%w: unknown segment %d", ErrSnapshot, index)
	}
	if index != l.segment {
		if err := l.flush(); err != nil {
			return err
		}
		l.segment = index
	}
	s := slot{tag: r.number(), word: r.number()}
	switch kind {
	case recordSlot:
		s.value = r.number()
		if s.word&wideFlag != 0 {
			return fmt.Errorf("%w: narrow record with the wide flag", ErrSnapshot)
		}
	case recordWide:
		block, err := l.words(r, s.word)
		if err != nil {
			return err
		}
		s.value = uint64(block)
	case recordBlock:
		h := Hash{tag: s.tag, spot: index<<(64-segmentBits) | s.word>>freshBits&3}
		if until := int64(r.number()); !l.t.Block(h, l.now, until) {
			return errFull
		}
		return nil
	default:
		return fmt.Errorf("%w: unknown record kind %d", ErrSnapshot, kind)
	}
	if r.err == nil && s.tag != 0 && s.expiresAt() > l.now { // expired states are not needed
		l.slots = append(l.slots, s)
		l.latest = max(l.latest, s.expiresAt())
	}
	return nil
}

// maxNumbers is more than a rule can have: two for each shape of each kind.
const maxNumbers = 2 * 256 * (3 + step.MaxSlices)

// loadRule reads the numbers that a rule has had.
func (t *Table) loadRule(r *snapshotReader, n uint64) error {
	known := t.Rules.Known(group.RuleID{A: r.number(), B: r.number()})
	if n > maxNumbers {
		return fmt.Errorf("%w: rule with %d numbers", ErrSnapshot, n)
	}
	all := make([]step.Numbers, n)
	for i := range all {
		kind := r.number()
		all[i] = step.Numbers{
			Kind: step.Kind(kind), Slices: int64(r.number()), Count: int64(r.number()), Length: int64(r.number()), Burst: int64(r.number()),
		}
		if r.err == nil && (kind > 255 || !all[i].IsValid()) {
			return fmt.Errorf("%w: rule with invalid numbers", ErrSnapshot)
		}
	}
	if r.err == nil {
		known.Learn(all...)
	}
	return nil
}

// words reads the words of a wide state into a new block.
func (l *loader) words(r *snapshotReader, word uint64) (ref, error) {
	n := r.number()
	if n == 0 || n > 1<<maxClass || n != 1<<classFor(int(n)) || word&wideFlag == 0 {
		return 0, fmt.Errorf("%w: wide record of %d words", ErrSnapshot, n)
	}
	block := l.t.arena.alloc(l.t, int(n))
	if block == 0 {
		return 0, errFull
	}
	words := l.t.arena.words(block)
	for i := range words {
		words[i] = r.number()
	}
	if !plausible(words) {
		return 0, fmt.Errorf("%w: wide record with an invalid header", ErrSnapshot)
	}
	return block, nil
}

// flush inserts the collected slots into their segment, with the smallest size that holds them.
func (l *loader) flush() error {
	if len(l.slots) == 0 {
		return nil
	}
	seg := &l.t.segments[l.segment]
	if seg.slots.len > 0 {
		return fmt.Errorf("%w: duplicate segment %d", ErrSnapshot, l.segment)
	}
	slices.SortFunc(l.slots, func(a, b slot) int { return cmp.Compare(a.tag, b.tag) })
	for i := 1; i < len(l.slots); i++ {
		if a, b := &l.slots[i-1], &l.slots[i]; a.tag == b.tag && a.word&extraMask == b.word&extraMask {
			return fmt.Errorf("%w: duplicate key", ErrSnapshot)
		}
	}
	n := firstSlots
	for n < len(l.slots) {
		n = growth(n)
	}
	if !l.t.region.fits(n) {
		return errFull
	}
	to, ok := l.t.region.grow(l.t, seg, n)
	if !ok {
		return errFull
	}
	first := to.len - len(l.slots)
	for i, s := range l.slots {
		*to.at(first + i) = s
	}
	l.t.spread(seg, to, first)
	l.slots = nil
	return nil
}

var errFull = errors.New("snapshot exceeds the memory limit: raise MaxBytes")

// plausible reports whether words can be those of a wide state of any kind: the header of a log stays within its ring,
// the counts of sub-windows are in range, or they are valid marks of a bucket.
func plausible(words []uint64) bool {
	if step.PlausibleMarks(words) {
		return true
	}
	head, n := words[0]&0xFFFF, words[0]>>16&0xFFFF
	if int(head) < len(words) && int(n) < len(words) {
		return true
	}
	for _, w := range words {
		if w > 1<<32 {
			return false
		}
	}
	return true
}

// loadCells reads a row of the sketch. If the width differs, because the memory limit has changed, each cell gets the
// latest of the cells it overlaps: too much, never too little.
func (t *Table) loadCells(r *snapshotReader, row uint64, now int64) error {
	until, width := int64(r.number()), r.number()
	if row >= bands*rows || width == 0 || width > 1<<24 {
		return fmt.Errorf("%w: sketch of width %d, row %d", ErrSnapshot, width, row)
	}
	k := &t.sketch
	for j := range width {
		cell := r.number()
		if r.err != nil {
			return nil
		}
		first := j * k.width / width
		last := ((j+1)*k.width + width - 1) / width
		for i := first; i < last; i++ {
			c := &k.cells[row*k.width+i]
			c.Store(max(c.Load(), cell))
		}
	}
	if until > now {
		k.until.Store(max(k.until.Load(), until))
		k.usedKeys.blind = max(k.usedKeys.blind, until)
	}
	return nil
}
