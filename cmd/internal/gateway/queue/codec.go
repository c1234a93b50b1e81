package queue

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Stored data is a version followed by fields in a fixed order: numbers as varints, strings with their lengths, because keys and
// headers may contain any bytes.
const codecVersion = 1

var errCodec = errors.New("queue: stored data is invalid")

func encodeItem(it *Item) []byte {
	e := encoder{b: make([]byte, 0, len(it.Body)+1024)}
	e.number(codecVersion)
	for _, s := range []string{it.ID, it.Rule, it.Key, it.Method, it.Scheme, it.Host, it.Target, it.RemoteAddr, it.IdempotencyKey} {
		e.text(s)
	}
	e.flag(it.Ordered)
	e.header(it.Header)
	e.texts(it.Claims)
	e.texts(it.Attributes)
	e.number(int64(it.Attempts))
	e.time(it.Expires)
	e.number(int64(it.Results))
	e.time(it.Accepted)
	e.bytes(it.Body)
	if len(it.Withheld) == 0 { // readable by earlier versions
		return e.b
	}
	e.number(int64(len(it.Withheld)))
	for _, name := range it.Withheld {
		e.text(name)
	}
	e.number(int64(len(it.Charges)))
	for _, c := range it.Charges {
		e.text(c.Rule)
		e.text(c.Key)
		e.text(c.Tier)
		e.number(c.Cost)
	}
	return e.b
}

func decodeItem(b []byte) (*Item, error) {
	d, it := openVersion(b), &Item{}
	for _, s := range []*string{&it.ID, &it.Rule, &it.Key, &it.Method, &it.Scheme, &it.Host, &it.Target, &it.RemoteAddr, &it.IdempotencyKey} {
		*s = d.text()
	}
	it.Ordered = d.flag()
	it.Header = d.header()
	it.Claims, it.Attributes = d.texts(), d.texts()
	it.Attempts, it.Expires, it.Results, it.Accepted = int(d.number()), d.time(), time.Duration(d.number()), d.time()
	it.Body = d.bytes()
	if len(d.b) == 0 {
		return it, d.close()
	}
	for range d.count() {
		it.Withheld = append(it.Withheld, d.text())
	}
	for range d.count() {
		it.Charges = append(it.Charges, Charge{Rule: d.text(), Key: d.text(), Tier: d.text(), Cost: d.number()})
	}
	return it, d.close()
}

func (o *itemHeader) encode() []byte {
	var e encoder
	e.number(codecVersion)
	e.text(o.rule)
	e.text(o.key)
	e.flag(o.ordered)
	e.time(o.accepted)
	e.time(o.expires)
	e.number(int64(o.attempts))
	e.number(int64(o.results))
	e.number(int64(o.size))
	e.text(o.client)
	return e.b
}

func decodeItemHeader(b []byte) (o itemHeader, err error) {
	d := openVersion(b)
	o.rule, o.key, o.ordered, o.accepted, o.expires = d.text(), d.text(), d.flag(), d.time(), d.time()
	o.attempts, o.results, o.size = int(d.number()), time.Duration(d.number()), int(d.number())
	if len(d.b) > 0 { // headers of earlier versions end here
		o.client = d.text()
	}
	return o, d.close()
}

func (r *itemState) encode() []byte {
	var e encoder
	e.number(codecVersion)
	e.number(int64(r.state))
	e.text(r.owner)
	e.number(int64(r.attempts))
	e.time(r.changed)
	e.time(r.next)
	e.time(r.expires)
	e.text(r.err)
	e.flag(r.result != nil)
	if a := r.result; a != nil {
		e.number(int64(a.Status))
		e.header(a.Header)
		e.bytes(a.Body)
		e.flag(a.Truncated)
	}
	e.flag(r.itemHeader != nil)
	if r.itemHeader != nil {
		e.bytes(r.itemHeader.encode())
	}
	return e.b
}

func decodeItemState(b []byte) (r itemState, err error) {
	d := openVersion(b)
	r.state, r.owner, r.attempts, r.changed = State(d.number()), d.text(), int(d.number()), d.time()
	r.next, r.expires, r.err = d.time(), d.time(), d.text()
	if d.flag() {
		r.result = &Result{Status: int(d.number()), Header: d.header(), Body: d.bytes(), Truncated: d.flag()}
	}
	if d.flag() {
		o, err := decodeItemHeader(d.bytes())
		if err != nil {
			return r, err
		}
		r.itemHeader = &o
	}
	return r, d.close()
}

type encoder struct{ b []byte }

func (e *encoder) number(n int64) { e.b = binary.AppendVarint(e.b, n) }
func (e *encoder) text(s string)  { e.b = append(binary.AppendUvarint(e.b, uint64(len(s))), s...) }
func (e *encoder) bytes(b []byte) { e.b = append(binary.AppendUvarint(e.b, uint64(len(b))), b...) }
func (e *encoder) flag(f bool)    { e.number(map[bool]int64{true: 1}[f]) }
func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.number(0)
		return
	}
	e.number(t.UnixMilli())
}

func (e *encoder) header(h http.Header) {
	e.number(int64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		e.text(name)
		e.number(int64(len(h[name])))
		for _, v := range h[name] {
			e.text(v)
		}
	}
}

func (e *encoder) texts(m map[string]string) {
	e.number(int64(len(m)))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		e.text(name)
		e.text(m[name])
	}
}

// decoder reads the output of an encoder. After the first error all reads fail.
type decoder struct {
	b   []byte
	bad bool
}

// openVersion returns a decoder after checking the version.
func openVersion(b []byte) *decoder {
	d := &decoder{b: b}
	d.bad = d.number() != codecVersion
	return d
}

// close returns an error after a failed read or if data is left.
func (d *decoder) close() error {
	if d.bad || len(d.b) > 0 {
		return errCodec
	}
	return nil
}

// fail marks the data as invalid and discards the rest.
func (d *decoder) fail() { d.bad, d.b = true, nil }

func (d *decoder) number() int64 {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) bytes() []byte {
	n, size := binary.Uvarint(d.b)
	if size <= 0 || n > uint64(len(d.b)-size) {
		d.fail()
		return nil
	}
	out := d.b[size : size+int(n) : size+int(n)]
	d.b = d.b[size+int(n):]
	return out
}

func (d *decoder) text() string { return string(d.bytes()) }
func (d *decoder) flag() bool   { return d.number() != 0 }

func (d *decoder) time() time.Time {
	if ms := d.number(); ms != 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

// count reads a number of elements. It is bounded by the remaining bytes, so that an invalid count does not allocate memory.
func (d *decoder) count() int {
	n := d.number()
	if n < 0 || n > int64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) header() http.Header {
	n := d.count()
	if n == 0 {
		return nil
	}
	h := make(http.Header, n)
	for range n {
		name := d.text()
		values := make([]string, d.count())
		for i := range values {
			values[i] = d.text()
		}
		h[name] = values
	}
	return h
}

func (d *decoder) texts() map[string]string {
	n := d.count()
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		name := d.text()
		m[name] = d.text()
	}
	return m
}

// itemCipher encrypts stored data, if there is a key. The subject is authenticated too, so that data cannot be moved to another
// subject.
type itemCipher struct {
	aead cipher.AEAD // nil: without encryption
	mark string      // identifies the key; "": without encryption
}

// KeySize is the size of a key in bytes, for AES-256.
const KeySize = 32

// First byte of stored data.
const (
	inClear = 0
	sealed  = 1
)

func newCipher(key []byte) (*itemCipher, error) {
	if len(key) == 0 {
		return &itemCipher{}, nil
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("queue: key of %d bytes, want %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte("sluice queue key"))
	return &itemCipher{aead, hex.EncodeToString(m.Sum(nil)[:8])}, nil
}

// keyMark is an entry of the metadata of the streams, so that a wrong key is detected at the start.
const keyMark = "sluice-key"

// check returns an error if the stream with this metadata was written with another key.
func (s *itemCipher) check(stream string, metadata map[string]string) error {
	if mark := metadata[keyMark]; mark != "" && mark != s.mark {
		return &keyError{name: stream, has: s.mark != ""}
	}
	return nil
}

// keyError is the error of a queue that was written with another key.
type keyError struct {
	name string
	has  bool
}

func (e *keyError) Error() string {
	if e.has {
		return "queue.encryption_key_file: " + e.name + " was written with another key: set the file with that key"
	}
	return "queue.encryption_key_file: " + e.name + " is encrypted: set the file with the key that it was written with"
}

// sealHeader returns the header of an item, encrypted and encoded as text.
func (s *itemCipher) sealHeader(subject string, o *itemHeader) string {
	return base64.StdEncoding.EncodeToString(s.encrypt(subject, o.encode()))
}

// openHeader decodes the result of sealHeader.
func (s *itemCipher) openHeader(subject, header string) (itemHeader, error) {
	b, err := base64.StdEncoding.DecodeString(header)
	if err == nil {
		b, err = s.decrypt(subject, b)
	}
	if err != nil {
		return itemHeader{}, err
	}
	return decodeItemHeader(b)
}

// openState decodes an encrypted state.
func (s *itemCipher) openState(subject string, b []byte) (itemState, error) {
	plain, err := s.decrypt(subject, b)
	if err != nil {
		return itemState{}, err
	}
	return decodeItemState(plain)
}

func (s *itemCipher) encrypt(subject string, plain []byte) []byte {
	if s.aead == nil {
		return append([]byte{inClear}, plain...)
	}
	out := make([]byte, 1+s.aead.NonceSize(), 1+s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	out[0] = sealed
	_, _ = rand.Read(out[1:]) // never fails
	return s.aead.Seal(out, out[1:], plain, []byte(subject))
}

var errNotDecrypted = errors.New("queue: stored data is encrypted with another key: set queue.encryption_key_file to the file with that key")

func (s *itemCipher) decrypt(subject string, b []byte) ([]byte, error) {
	switch {
	case len(b) > 0 && b[0] == inClear:
		return b[1:], nil
	case len(b) == 0 || b[0] != sealed:
		return nil, errCodec
	case s.aead == nil || len(b) < 1+s.aead.NonceSize():
		return nil, errNotDecrypted
	}
	n := 1 + s.aead.NonceSize()
	plain, err := s.aead.Open(nil, b[1:n], b[n:], []byte(subject))
	if err != nil {
		return nil, errNotDecrypted
	}
	return plain, nil
}
