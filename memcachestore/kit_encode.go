package memcachestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/sluiceproject/sluice/internal/step"
)

// A value is a version, a checksum of the stored key and of the following bytes, and numbers of variable length:
//
//	blocked until
//	number of buckets, and for each: kind, shape, expiry, value, twice the number of words plus one if short, words
//	number of charges, and for each: ID, at, until minus at, granted, denied (0 or 1) plus 2 if void
//
// An unknown version is an error: upgrade all readers before one instance writes it.

const (
	version    = 1
	headerSize = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errValue is the error for a value that the kit cannot have written.
var errValue = errors.New("the stored value is damaged or was written by another program: " +
	"reset the key, or use a different KeyPrefix")

// checksum covers the name too, so that a value that is read under another name is detected.
func checksum(name string, body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, body)
}

// encode returns the item in its stored form for a name, or nil if the item is empty.
func (it *item) encode(name string) []byte {
	b := make([]byte, headerSize, 64)
	b = binary.AppendUvarint(b, uint64(it.blocked))
	live := 0
	for i := range it.buckets {
		live += one(it.buckets[i].state != step.State{})
	}
	if live == 0 && it.blocked == 0 && len(it.charges) == 0 {
		return nil
	}
	b = binary.AppendUvarint(b, uint64(live))
	for i := range it.buckets {
		if it.buckets[i].state != (step.State{}) {
			b = it.buckets[i].append(b)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(it.charges)))
	for i := range it.charges {
		b = it.charges[i].append(b)
	}
	return seal(name, b)
}

// seal fills in the header.
func seal(name string, b []byte) []byte {
	b[0] = version
	binary.LittleEndian.PutUint32(b[1:], checksum(name, b[headerSize:]))
	return b
}

func (k *bucket) append(b []byte) []byte {
	b = binary.AppendUvarint(b, k.identity)
	b = append(b, k.state.Shape)
	b = binary.AppendUvarint(b, uint64(k.state.ExpiresAt))
	b = binary.AppendUvarint(b, k.state.Value)
	short := true
	for _, w := range k.words {
		short = short && w <= math.MaxUint32
	}
	b = binary.AppendUvarint(b, uint64(len(k.words)*2+one(short)))
	for _, w := range k.words {
		if short {
			b = binary.LittleEndian.AppendUint32(b, uint32(w))
		} else {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	return b
}

func (c *chargeRecord) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.id)
	b = binary.AppendVarint(b, c.at)
	b = binary.AppendVarint(b, c.until-c.at)
	b = binary.AppendVarint(b, c.granted)
	return append(b, byte(one(c.denied)+2*one(c.voided)))
}

// encodeCharge returns a charge in its stored form for its own name.
func encodeCharge(name string, c *chargeRecord) []byte {
	return seal(name, c.append(make([]byte, headerSize, 40)))
}

// reader reads numbers. After the first number that is missing or out of bounds it returns only 0.
type reader struct {
	b      []byte
	broken bool
}

// open checks the header of a value.
func open(name string, value []byte) (*reader, error) {
	if len(value) < headerSize {
		return nil, errValue
	}
	if value[0] != version {
		return nil, fmt.Errorf("the value has version %d, this program supports %d: %w", value[0], version, errValue)
	}
	if binary.LittleEndian.Uint32(value[1:]) != checksum(name, value[headerSize:]) {
		return nil, errValue
	}
	return &reader{b: value[headerSize:]}, nil
}

// close returns an error unless the whole value has been read.
func (r *reader) close() error {
	if r.broken || len(r.b) > 0 {
		return errValue
	}
	return nil
}

func (r *reader) take(n int) []byte {
	if r.broken || n > len(r.b) {
		r.broken = true
		return make([]byte, min(n, 8))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// number reads a number that is at most limit.
func (r *reader) number(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if r.broken || n <= 0 || v > limit {
		r.broken = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) signed(limit int64) int64 {
	v, n := binary.Varint(r.b)
	if r.broken || n <= 0 || v > limit || v < -limit {
		r.broken = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

const (
	// maxWords is the maximum number of words, those of a sliding log: a header and an entry per request.
	maxWords = 1 + step.MaxLogCount
	// maxSliceCount exceeds the count of any sub-window, and is so small that a sum of them does not overflow.
	maxSliceCount = 1 << 40
	logCostMask   = 1<<14 - 1
	maxBuckets    = 7 + step.MaxSlices // one of each kind
	// maxTime exceeds step.MaxTime, because a future time may be later than that by the time that a bucket takes to
	// fill.
	maxTime = 2 * step.MaxTime
)

// decode decodes an item that was stored under a name. The backend is not trusted: for any value, decode fails or the
// item can be applied.
func (it *item) decode(name string, value []byte) error {
	*it = item{}
	r, err := open(name, value)
	if err != nil {
		return err
	}
	it.blocked = int64(r.number(maxTime))
	n := int(r.number(maxBuckets))
	if n <= 1 {
		it.buckets = it.spare[:0]
	}
	for range n {
		it.buckets = append(it.buckets, r.bucket())
	}
	for range int(r.number(maxValue / 12)) {
		if r.broken {
			break
		}
		it.charges = append(it.charges, r.charge())
	}
	return r.close()
}

func decodeCharge(name string, value []byte) (chargeRecord, error) {
	r, err := open(name, value)
	if err != nil {
		return chargeRecord{}, err
	}
	c := r.charge()
	return c, r.close()
}

func (r *reader) bucket() bucket {
	k := bucket{identity: r.number(math.MaxUint16)}
	k.state.Shape = r.take(1)[0]
	k.state.ExpiresAt = int64(r.number(maxTime))
	k.state.Value = r.number(math.MaxUint64)
	if n := r.number(2*maxWords + 1); n >= 2 {
		k.words = r.words(int(n/2), n%2 == 1)
	}
	r.broken = r.broken || !k.valid()
	return k
}

func (r *reader) words(n int, short bool) []uint64 {
	size := 8 - 4*one(short)
	if r.broken || n*size > len(r.b) {
		r.broken = true
		return nil
	}
	words := make([]uint64, n)
	for i := range words {
		if short {
			words[i] = uint64(binary.LittleEndian.Uint32(r.take(4)))
		} else {
			words[i] = binary.LittleEndian.Uint64(r.take(8))
		}
	}
	return words
}

// valid reports whether a bucket can be applied. The algorithms do not check the words that they have written.
func (k *bucket) valid() bool {
	identity := k.identity
	if identity == uint64(step.Bucket)|step.InitialIdentity {
		identity = uint64(step.Bucket)
	}
	kind, slices := step.Kind(identity&0xFF), int(identity>>8)
	switch {
	case k.state.ExpiresAt == 0, kind == step.Interval && k.state.Value > maxTime:
		return false
	case (kind == step.Log || kind == step.Permits) && slices == 0:
		return validLog(k.words)
	case kind == step.Slices && slices >= 2 && slices <= step.MaxSlices:
		for _, w := range k.words {
			if w > maxSliceCount {
				return false
			}
		}
		return len(k.words) == slices+1
	case (kind == step.Bucket || kind == step.Interval) && slices == 0 && len(k.words) > 0:
		return step.PlausibleMarks(k.words) && k.words[0] <= maxTime
	}
	return kind >= step.Bucket && kind < step.Slices && slices == 0 && len(k.words) == 0
}

// validLog reports whether words are a ring of entries, with a header of their start, number and sum.
func validLog(words []uint64) bool {
	if len(words) < 2 {
		return false
	}
	ring := words[1:]
	head, n, sum := int(words[0]&0xFFFF), int(words[0]>>16&0xFFFF), int64(words[0]>>32)
	if head >= len(ring) || n > len(ring) {
		return false
	}
	for i := range n {
		sum -= int64(ring[(head+i)%len(ring)] & logCostMask)
	}
	return sum == 0
}

func (r *reader) charge() chargeRecord {
	c := chargeRecord{id: binary.LittleEndian.Uint64(r.take(8))}
	c.at = r.signed(maxTime)
	c.until = c.at + r.signed(maxTime)
	c.granted = r.signed(math.MaxInt64)
	flags := r.number(3)
	c.denied, c.voided = flags&1 != 0, flags&2 != 0
	return c
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
