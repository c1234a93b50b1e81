package checkapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// A reservation is a token with all data that a settlement needs, so that the service stores nothing and any instance with
// the secret can settle it:
//
//	version   1 byte
//	expires   8 bytes, milliseconds since 1970
//	id        16 bytes, random; the store remembers it once it is settled
//	takes     each: flags, identity of the algorithm, digest of the limit, receipt, charged cost, limit, the process that
//	          decided if the store was unavailable; rule, key and hash tag, each with its length
//	MAC       32 bytes, HMAC-SHA256 of everything before
//
// Version 1 has neither the limit nor the process, and no marks. It is accepted until the last such token has expired.
//
// A token is authenticated but not secret: its keys are values sent by the client, or digests of them.
type reservation struct {
	expires time.Time
	id      [16]byte
	takes   []reserved
}

// reserved is one charged take.
type reserved struct {
	rule, key, hashTag string
	identity           uint64 // identity of the algorithm; a limit with another one uses another bucket
	limit              uint64 // digest of the limit; a rule can have different limits per key or plan
	at, charged        int64
	of                 int64  // limit at the time of the charge; 0 if unknown
	process            uint64 // process that decided while the store was unavailable; 0 if the store decided
	fixed              bool   // the rule sets the cost, so that only a cancellation changes the charge
	marked             bool   // the store has a mark for it
}

const (
	tokenVersion = 2
	tokenHead    = 1 + 8 + 16
	macSize      = sha256.Size
	takeOverhead = 1 + 7*binary.MaxVarintLen64 + 8 + 8
	fixedFlag    = 1
	markedFlag   = 2
	localFlag    = 4

	// maxToken is the maximum size of a token in bytes before Base64, so that a settlement fits in a body.
	maxToken = 32 << 10
	maxTakes = 1024
)

// tokens encodes and decodes reservations.
type tokens struct {
	key     [sha256.Size]byte
	process uint64 // random ID of this process
}

func newTokens(secret []byte) tokens {
	if secret == nil {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
	}
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails
	return tokens{sha256.Sum256(append([]byte("sluice reservations\x00"), secret...)), binary.BigEndian.Uint64(name[:]) | 1}
}

// tokenSize returns an upper bound of the size in bytes of the token for takes.
func tokenSize(takes []sluice.Take) int {
	n := tokenHead + macSize
	for i := range takes {
		t := &takes[i]
		n += takeOverhead + len(t.Rule.Name) + len(t.Key) + len(t.HashTag)
	}
	return n
}

var encoding = base64.RawURLEncoding.Strict()

// write appends the token in Base64.
func (t *tokens) write(text []byte, r *reservation) []byte {
	b := append(make([]byte, 0, 512), tokenVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(r.expires.UnixMilli()))
	b = append(b, r.id[:]...)
	for i := range r.takes {
		k := &r.takes[i]
		flags := byte(0)
		if k.fixed {
			flags = fixedFlag
		}
		if k.marked {
			flags |= markedFlag
		}
		if k.process != 0 {
			flags |= localFlag
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, k.identity)
		b = binary.BigEndian.AppendUint64(b, k.limit)
		b = binary.AppendUvarint(b, uint64(k.at))
		b = binary.AppendUvarint(b, uint64(k.charged))
		b = binary.AppendUvarint(b, uint64(k.of))
		if k.process != 0 {
			b = binary.BigEndian.AppendUint64(b, k.process)
		}
		for _, s := range [...]string{k.rule, k.key, k.hashTag} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return encoding.AppendEncode(text, append(b, t.mac(b)...))
}

func (t *tokens) mac(b []byte) []byte {
	m := hmac.New(sha256.New, t.key[:])
	m.Write(b)
	return m.Sum(nil)
}

var (
	errForged  = errors.New("not a reservation of this service")
	errExpired = errors.New("the reservation has expired")
)

// read decodes a token. It returns errForged or errExpired if it is invalid.
func (t *tokens) read(text string, now time.Time) (*reservation, error) {
	if len(text) > encoding.EncodedLen(maxToken) {
		bounds.Reservation.Reached()
		return nil, errForged
	}
	b, err := encoding.DecodeString(text)
	if err != nil || len(b) < tokenHead+macSize {
		return nil, errForged
	}
	b, sum := b[:len(b)-macSize], b[len(b)-macSize:]
	if !hmac.Equal(sum, t.mac(b)) || b[0] < 1 || b[0] > tokenVersion {
		return nil, errForged
	}
	r := &reservation{expires: time.UnixMilli(int64(binary.BigEndian.Uint64(b[1:])))}
	copy(r.id[:], b[9:])
	if !now.Before(r.expires) {
		return nil, errExpired
	}
	for d := (decoder{b: b[tokenHead:]}); len(d.b) > 0; {
		k := d.reserved(b[0])
		if d.bad || len(r.takes) == maxTakes { // written by another version with the same number, since the MAC is valid
			return nil, errForged
		}
		r.takes = append(r.takes, k)
	}
	return r, nil
}

// decoder decodes the parts of a token.
type decoder struct {
	b   []byte
	bad bool
}

// reserved decodes one take of a token of the given version.
func (d *decoder) reserved(version byte) (k reserved) {
	flags := d.byte()
	k.fixed = flags&fixedFlag != 0
	k.identity, k.limit = d.uvarint(), d.uint64()
	k.at, k.charged = int64(d.uvarint()), int64(d.uvarint())
	if version > 1 {
		k.marked, k.of = flags&markedFlag != 0, int64(d.uvarint())
	}
	if version > 1 && flags&localFlag != 0 {
		k.process = d.uint64()
	}
	k.rule, k.key, k.hashTag = d.string(), d.string(), d.string()
	return k
}

// next returns the next n bytes. If there are fewer, it returns nil and marks the token as bad.
func (d *decoder) next(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	part := d.b[:n]
	d.b = d.b[n:]
	return part
}

func (d *decoder) byte() byte {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.next(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) string() string { return string(d.next(d.uvarint())) }

// limitDigest returns a digest that distinguishes the limits of one rule.
func limitDigest(l *sluice.Limit) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.String()))
	return h.Sum64()
}
