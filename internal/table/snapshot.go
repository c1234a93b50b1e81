package table

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// A snapshot is a magic line, a header, records and a checksum, all numbers little-endian:
//
//	magic   "sluice snapshot 1\n"
//	header  seed (4 words), time of saving
//	record  kind, segment, then by kind:
//	        slot:  tag, word, value
//	        wide:  tag, word, number of words, words
//	        block: tag, extra, until
//	        cells: band and row in place of the segment; until, width, cells
//	end     kind 0, number of records
//	sum     SHA-256 of everything before
//
// The checksum tells a torn or damaged file from a whole one. It is no protection against somebody who can write the
// file: a snapshot is trusted as much as the program's configuration.

const snapshotMagic = "sluice snapshot 1\n"

const (
	recordEnd = iota
	recordSlot
	recordWide
	recordBlock
	recordCells
)

// ErrSnapshot is wrapped by errors about snapshots that are torn, damaged or not snapshots at all.
var ErrSnapshot = errors.New("not a whole snapshot")

type snapshotWriter struct {
	w       *bufio.Writer
	sum     hash.Hash
	records uint64
	err     error
}

func (w *snapshotWriter) bytes(b []byte) {
	if w.err == nil {
		w.sum.Write(b)
		_, w.err = w.w.Write(b)
	}
}

func (w *snapshotWriter) numbers(ns ...uint64) {
	var b [8]byte
	for _, n := range ns {
		binary.LittleEndian.PutUint64(b[:], n)
		w.bytes(b[:])
	}
}

// Save writes all live states. Segments are locked one after the other: each is of one moment, the whole is not.
func (t *Table) Save(dst io.Writer, now int64) error {
	w := &snapshotWriter{w: bufio.NewWriterSize(dst, 1<<16), sum: sha256.New()}
	w.bytes([]byte(snapshotMagic))
	w.numbers(t.seed[:]...)
	w.numbers(uint64(now))
	for i := range t.segments {
		t.saveSegment(w, i, now)
	}
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
		_, w.err = w.w.Write(w.sum.Sum(nil))
	}
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.err
}

func (t *Table) saveSegment(w *snapshotWriter, i int, now int64) {
	seg := &t.segments[i]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	for j := range seg.slots {
		s := &seg.slots[j]
		switch {
		case s.tag == 0 || s.freshAt() <= now:
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
	if seg.cold == nil {
		return
	}
	for _, b := range seg.cold.blocks {
		if b.until > now {
			w.numbers(recordBlock, uint64(i), b.tag, b.extra, uint64(b.until))
			w.records++
		}
	}
}

type snapshotReader struct {
	r   *bufio.Reader
	sum hash.Hash
	err error
}

func (r *snapshotReader) bytes(n int) []byte {
	b := make([]byte, n)
	if r.err == nil {
		if _, r.err = io.ReadFull(r.r, b); r.err == nil {
			r.sum.Write(b)
		}
	}
	return b
}

func (r *snapshotReader) number() uint64 {
	var b [8]byte
	if r.err != nil {
		return 0
	}
	if _, r.err = io.ReadFull(r.r, b[:]); r.err != nil {
		return 0
	}
	r.sum.Write(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// Load reads a snapshot into a new table. It returns a table only if all of the snapshot was there and whole.
func Load(src io.Reader, c Config, now int64) (*Table, error) {
	r := &snapshotReader{r: bufio.NewReaderSize(src, 1<<16), sum: sha256.New()}
	if string(r.bytes(len(snapshotMagic))) != snapshotMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrSnapshot, snapshotMagic)
	}
	var seed Seed
	for i := range seed {
		seed[i] = r.number()
	}
	r.number() // the time of saving is for people
	c.Seed = &seed
	t := New(c)
	var records uint64
	for {
		kind := r.number()
		if r.err != nil {
			return nil, fmt.Errorf("%w: after %d records: %w", ErrSnapshot, records, r.err)
		}
		if kind == recordEnd {
			break
		}
		if err := t.loadRecord(r, kind, now); err != nil {
			return nil, fmt.Errorf("record %d: %w", records, err)
		}
		records++
	}
	if n := r.number(); n != records {
		return nil, fmt.Errorf("%w: it has %d records and says %d", ErrSnapshot, records, n)
	}
	want := r.sum.Sum(nil)
	if got := r.bytes(len(want)); r.err != nil || !bytes.Equal(got, want) {
		return nil, fmt.Errorf("%w: the checksum is wrong", ErrSnapshot)
	}
	if _, err := r.r.ReadByte(); err != io.EOF {
		return nil, fmt.Errorf("%w: something follows its end", ErrSnapshot)
	}
	return t, nil
}

func (t *Table) loadRecord(r *snapshotReader, kind uint64, now int64) error {
	index := r.number()
	if kind == recordCells {
		return t.loadCells(r, index, now)
	}
	if index >= segments {
		return fmt.Errorf("%w: there is no segment %d", ErrSnapshot, index)
	}
	seg := &t.segments[index]
	s := slot{tag: r.number(), word: r.number()}
	switch kind {
	case recordSlot:
		s.value = r.number()
		if s.word&wideFlag != 0 {
			return fmt.Errorf("%w: a narrow record says it is wide", ErrSnapshot)
		}
	case recordWide:
		n := r.number()
		if n == 0 || n > 1<<maxClass || n&(n-1) != 0 || s.word&wideFlag == 0 {
			return fmt.Errorf("%w: a wide record of %d words", ErrSnapshot, n)
		}
		block := t.arena.alloc(t, int(n))
		if block == 0 {
			return errFull
		}
		words := t.arena.words(block)
		for i := range n {
			words[i] = r.number()
		}
		if len(words) != int(n) || !plausible(words) {
			return fmt.Errorf("%w: a wide record whose header makes no sense", ErrSnapshot)
		}
		s.value = uint64(block)
	case recordBlock:
		h := Hash{tag: s.tag, spot: index<<(64-segmentBits) | s.word>>freshBits&3}
		if until := int64(r.number()); !t.Block(h, now, until) {
			return errFull
		}
		return nil
	default:
		return fmt.Errorf("%w: there is no record of kind %d", ErrSnapshot, kind)
	}
	if r.err != nil || s.tag == 0 || s.freshAt() <= now {
		return nil // torn is noticed by the caller; what has worn off is not needed
	}
	if _, ok := seg.find(s.tag, s.word&extraMask); ok {
		return fmt.Errorf("%w: a key is there twice", ErrSnapshot)
	}
	if !t.insert(seg, s, now) {
		return errFull
	}
	return nil
}

var errFull = errors.New("the snapshot does not fit the budget: raise it")

// plausible checks that a log's header stays within its ring, whichever kind of state the words are: a ring of
// sub-windows passes as long as its counts are counts.
func plausible(words []uint64) bool {
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

// loadCells reads a row of the sketch. If the width differs, because the budget does, each cell becomes the latest of
// those it overlaps: too much, not too little.
func (t *Table) loadCells(r *snapshotReader, row uint64, now int64) error {
	until, width := int64(r.number()), r.number()
	if row >= bands*rows || width == 0 || width > 1<<24 {
		return fmt.Errorf("%w: a sketch of width %d, row %d", ErrSnapshot, width, row)
	}
	k := &t.sketch
	k.once.Do(k.make)
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
	}
	return nil
}
