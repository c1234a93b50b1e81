package rls

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	reached "github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// Bounds are the bounds of a request. A request above one is rejected before it is decided. A zero field means the default.
//
// Keys and values have no separate bound and need not be UTF-8, because Envoy sends header values of clients unchanged. If a
// long header or a byte such as 0xff failed the call, a proxy that fails open would not limit the client. A long value is
// counted by its digest; see [rules.Set.MatchDescriptors].
type Bounds struct {
	Descriptors int // maximum per request; default 1000
	Message     int // maximum size of a message in bytes; default [DefaultMessage]

	// Names of the settings that raise the bounds, for errors; default those of `sluice serve`.
	DescriptorsSetting, MessageSetting string
}

// Defaults of [Bounds].
const (
	DefaultDescriptors = 1000
	DefaultMessage     = 1 << 20
)

// MaxEntries is the number of entries of a descriptor that are kept, more than the 64 levels that rules can match. Further
// entries are replaced by one with their digest.
const MaxEntries = 100

// GRPCLimit is the largest message that gRPC accepts. It is above the bound because gRPC's own error does not name a setting.
func (b Bounds) GRPCLimit() int { return 2 * b.WithDefaults().Message }

// WithDefaults returns b with defaults for zero fields.
func (b Bounds) WithDefaults() Bounds {
	if b.Descriptors <= 0 {
		b.Descriptors = DefaultDescriptors
	}
	if b.Message <= 0 {
		b.Message = DefaultMessage
	}
	b.DescriptorsSetting = cmp.Or(b.DescriptorsSetting, "rls.max_descriptors")
	b.MessageSetting = cmp.Or(b.MessageSetting, "listeners.grpc.max_message_size")
	return b
}

// BoundError is the error of a request above a bound. It names the setting that raises the bound.
type BoundError struct {
	text string
	code codes.Code
}

func (e *BoundError) Error() string { return e.text }

// checkSize returns an error if size exceeds the maximum size of a message.
func (b *Bounds) checkSize(size int) error {
	if size <= b.Message {
		return nil
	}
	reached.RLSMessage.Reached()
	text := fmt.Sprintf("the message has %d bytes, more than %d: send less, or raise %s", size, b.Message, b.MessageSetting)
	return &BoundError{text, codes.ResourceExhausted} // the code that gRPC uses
}

// checkDescriptors returns an error if n exceeds the maximum number of descriptors.
func (b *Bounds) checkDescriptors(n int) error {
	if n <= b.Descriptors {
		return nil
	}
	reached.RLSDescriptors.Reached()
	text := fmt.Sprintf("more than %d descriptors: send fewer, or raise %s", b.Descriptors, b.DescriptorsSetting)
	return &BoundError{text, codes.InvalidArgument}
}

// errMalformed is the error for bytes that are not a RateLimitRequest.
var errMalformed = errors.New("the message is not a RateLimitRequest: it is truncated or not protobuf")

var errDomain = errors.New("the domain is not UTF-8")

// Decode decodes a RateLimitRequest. The strings of the request point into b. After an error the request must not be used.
func (r *Request) Decode(b []byte, bounds Bounds) error {
	r.Reset()
	bounds = bounds.WithDefaults()
	if err := bounds.checkSize(len(b)); err != nil {
		return err
	}
	f := fieldReader{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			// The domain is set by the operator of the proxy, so rejecting it gives clients no way around a limit.
			if r.Domain = text(f.bytes); !utf8.ValidString(r.Domain) {
				return errDomain
			}
		case f.isBytes(2):
			if err := bounds.checkDescriptors(len(r.Descriptors) + 1); err != nil {
				return err
			}
			if err := r.descriptor(f.bytes); err != nil {
				return err
			}
		case f.isVarint(3):
			r.HitsAddend = uint32(f.varint)
		}
	}
	if f.err != nil {
		return f.err
	}
	// The entries are assigned after parsing, because append may move them.
	from := 0
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		to := from + len(d.Entries)
		d.Entries = r.entries[from:to:to]
		from = to
	}
	return nil
}

func (r *Request) descriptor(b []byte) error {
	r.Descriptors = append(r.Descriptors, Descriptor{})
	d := &r.Descriptors[len(r.Descriptors)-1]
	from := len(r.entries)
	f := fieldReader{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			var e rules.Entry
			if err := entry(&e, f.bytes); err != nil {
				return err
			}
			r.entries = appendEntry(r.entries, from, e)
		case f.isBytes(2):
			d.HasOverride = true
			if err := override(&d.Override, f.bytes); err != nil {
				return err
			}
		case f.isBytes(3):
			d.HasHits = true
			if err := wrapped(&d.Hits, f.bytes); err != nil {
				return err
			}
		case f.isVarint(4):
			d.Negative = f.varint != 0
		}
	}
	if f.err != nil {
		return f.err
	}
	d.Entries = r.entries[from:] // only the length is valid until Decode assigns it
	return nil
}

// appendEntry appends an entry to the descriptor whose entries begin at from.
func appendEntry(to []rules.Entry, from int, e rules.Entry) []rules.Entry {
	if len(to)-from <= MaxEntries {
		return append(to, e)
	}
	reached.RLSEntries.Reached()
	last := &to[len(to)-1] // no rule matches it, but it is part of the key of a limit in the request
	sum := sha256.Sum256(fmt.Appendf(nil, "%q%q%q%q", last.Key, last.Value, e.Key, e.Value))
	*last = rules.Entry{Key: last.Key, Value: hex.EncodeToString(sum[:])}
	return to
}

func entry(e *rules.Entry, b []byte) error {
	f := fieldReader{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			e.Key = text(f.bytes)
		case f.isBytes(2):
			e.Value = text(f.bytes)
		}
	}
	return f.err
}

func override(o *Override, b []byte) error {
	f := fieldReader{rest: b}
	for f.next() {
		switch {
		case f.isVarint(1):
			o.RequestsPerUnit = uint32(f.varint)
		case f.isVarint(2):
			o.Unit = Unit(int32(uint32(f.varint)))
		case f.isBytes(3):
			v := uint64(o.Multiplier) // a repeated field is merged with the first
			if err := wrapped(&v, f.bytes); err != nil {
				return err
			}
			o.Multiplier = uint32(v)
		}
	}
	return f.err
}

// wrapped decodes a UInt64Value or UInt32Value.
func wrapped(to *uint64, b []byte) error {
	f := fieldReader{rest: b}
	for f.next() {
		if f.isVarint(1) {
			*to = f.varint
		}
	}
	return f.err
}

// A fieldReader iterates over the fields of a message.
type fieldReader struct {
	rest []byte
	err  error // errMalformed if the rest is not a valid field

	// The current field. Wire types that no known field uses have no value.
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  []byte
}

// next advances to the next field and reports whether there is one.
func (f *fieldReader) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(f.rest)
	if n < 0 || number > protowire.MaxValidNumber {
		f.err = errMalformed
		return false
	}
	var m int
	switch kind {
	case protowire.VarintType:
		f.varint, m = protowire.ConsumeVarint(f.rest[n:])
	case protowire.BytesType:
		f.bytes, m = protowire.ConsumeBytes(f.rest[n:])
	default:
		m = protowire.ConsumeFieldValue(number, kind, f.rest[n:])
	}
	if m < 0 {
		f.err = errMalformed
		return false
	}
	f.number, f.kind, f.rest = number, kind, f.rest[n+m:]
	return true
}

// isVarint reports whether the field has the number and is a varint.
func (f *fieldReader) isVarint(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.VarintType
}

// isBytes reports whether the field has the number and is a string or message.
func (f *fieldReader) isBytes(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.BytesType
}

// text returns the bytes as a string without copying. It need not be UTF-8.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Append appends the encoded response to b.
func (r *Response) Append(b []byte) ([]byte, error) {
	b = appendVarint(b, 1, uint64(r.Overall))
	for i := range r.Statuses {
		s := &r.Statuses[i]
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(s.size()))
		b = s.append(b)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeText(h.Name)+sizeText(h.Value)))
		b = appendText(b, 1, h.Name)
		b = appendText(b, 2, h.Value)
	}
	if r.Metadata != nil {
		b = protowire.AppendTag(b, 6, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(proto.Size(r.Metadata)))
		return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, r.Metadata)
	}
	return b, nil
}

func (s *Status) size() int {
	n := sizeVarint(uint64(s.Code)) + sizeVarint(uint64(s.Remaining))
	if s.HasLimit {
		m := s.Limit.size()
		n += 1 + protowire.SizeBytes(m)
	}
	if s.HasReset {
		n += 2 + sizeVarint(uint64(s.Reset))
	}
	return n
}

func (s *Status) append(b []byte) []byte {
	b = appendVarint(b, 1, uint64(s.Code))
	if s.HasLimit {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(s.Limit.size()))
		b = s.Limit.append(b)
	}
	b = appendVarint(b, 3, uint64(s.Remaining))
	if s.HasReset {
		b = protowire.AppendTag(b, 4, protowire.BytesType)
		b = append(b, byte(sizeVarint(uint64(s.Reset))))
		b = appendVarint(b, 1, uint64(s.Reset))
	}
	return b
}

func (l *Limit) size() int {
	n := sizeVarint(uint64(l.Requests)) + sizeVarint(uint64(l.Unit)) + sizeText(l.Name)
	if l.Multiplier != 0 {
		n += 2 + sizeVarint(uint64(l.Multiplier))
	}
	return n
}

func (l *Limit) append(b []byte) []byte {
	b = appendVarint(b, 1, uint64(l.Requests))
	b = appendVarint(b, 2, uint64(l.Unit))
	b = appendText(b, 3, l.Name)
	if l.Multiplier != 0 {
		b = protowire.AppendTag(b, 4, protowire.BytesType)
		b = append(b, byte(sizeVarint(uint64(l.Multiplier))))
		b = appendVarint(b, 1, uint64(l.Multiplier))
	}
	return b
}

// All field numbers are below 16, so a tag is one byte. Zero and empty values are not encoded.

func sizeVarint(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func appendVarint(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

func sizeText(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

func appendText(b []byte, number protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendString(b, s)
}
