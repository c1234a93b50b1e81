package rls

import (
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	reached "github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// Bounds are what a request may hold. More is refused before anything is done with it. A zero field means the default.
type Bounds struct {
	Descriptors int // in a request; default 32
	Entries     int // in a descriptor; default 16
	Bytes       int // in a key, a value or a domain; default 1024
}

// Defaults of [Bounds].
const (
	DefaultDescriptors = 32
	DefaultEntries     = 16
	DefaultBytes       = 1024
)

// WithDefaults has the defaults for what is not set.
func (b Bounds) WithDefaults() Bounds {
	set := func(n *int, to int) {
		if *n <= 0 {
			*n = to
		}
	}
	set(&b.Descriptors, DefaultDescriptors)
	set(&b.Entries, DefaultEntries)
	set(&b.Bytes, DefaultBytes)
	return b
}

// errMalformed is what is said of bytes that are no RateLimitRequest.
var errMalformed = errors.New("the message is no RateLimitRequest: it is cut short or not protobuf")

// Decode reads a RateLimitRequest. The request's strings are parts of b. On error the request is not to be used.
func (r *Request) Decode(b []byte, bounds Bounds) error {
	r.Reset()
	bounds = bounds.WithDefaults()
	for len(b) > 0 {
		number, kind, value, n, ok := field(b)
		if !ok {
			return errMalformed
		}
		switch {
		case number == 1 && kind == protowire.BytesType:
			var err error
			if r.Domain, err = text(value.bytes, &bounds, "the domain"); err != nil {
				return err
			}
		case number == 2 && kind == protowire.BytesType:
			if len(r.Descriptors) == bounds.Descriptors {
				reached.RLSDescriptors.Reached()
				return fmt.Errorf("more than %d descriptors: send fewer, or raise max_descriptors", bounds.Descriptors)
			}
			if err := r.descriptor(value.bytes, &bounds); err != nil {
				return err
			}
		case number == 3 && kind == protowire.VarintType:
			r.HitsAddend = uint32(value.varint)
		}
		b = b[n:]
	}
	// The entries are cut out only now that their slice grows no more.
	from := 0
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		to := from + len(d.Entries)
		d.Entries = r.entries[from:to:to]
		from = to
	}
	return nil
}

func (r *Request) descriptor(b []byte, bounds *Bounds) error {
	r.Descriptors = append(r.Descriptors, Descriptor{})
	d := &r.Descriptors[len(r.Descriptors)-1]
	from := len(r.entries)
	for len(b) > 0 {
		number, kind, value, n, ok := field(b)
		if !ok {
			return errMalformed
		}
		switch {
		case number == 1 && kind == protowire.BytesType:
			if len(r.entries)-from == bounds.Entries {
				reached.RLSEntries.Reached()
				return fmt.Errorf("descriptor %d has more than %d entries: send fewer, or raise max_entries", len(r.Descriptors), bounds.Entries)
			}
			r.entries = append(r.entries, rules.Entry{})
			if err := entry(&r.entries[len(r.entries)-1], value.bytes, bounds); err != nil {
				return err
			}
		case number == 2 && kind == protowire.BytesType:
			d.HasOverride = true
			if !override(&d.Override, value.bytes) {
				return errMalformed
			}
		case number == 3 && kind == protowire.BytesType:
			d.HasHits = true
			if !wrapped(&d.Hits, value.bytes) {
				return errMalformed
			}
		case number == 4 && kind == protowire.VarintType:
			d.Negative = value.varint != 0
		}
		b = b[n:]
	}
	d.Entries = r.entries[from:] // its length, until Decode sets it
	return nil
}

func entry(e *rules.Entry, b []byte, bounds *Bounds) (err error) {
	for len(b) > 0 {
		number, kind, value, n, ok := field(b)
		if !ok {
			return errMalformed
		}
		switch {
		case number == 1 && kind == protowire.BytesType:
			e.Key, err = text(value.bytes, bounds, "a descriptor's key")
		case number == 2 && kind == protowire.BytesType:
			e.Value, err = text(value.bytes, bounds, "a descriptor's value")
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func override(o *Override, b []byte) bool {
	for len(b) > 0 {
		number, kind, value, n, ok := field(b)
		if !ok {
			return false
		}
		switch {
		case number == 1 && kind == protowire.VarintType:
			o.RequestsPerUnit = uint32(value.varint)
		case number == 2 && kind == protowire.VarintType:
			o.Unit = Unit(int32(uint32(value.varint)))
		case number == 3 && kind == protowire.BytesType:
			v := uint64(o.Multiplier) // a second one is merged with the first
			if !wrapped(&v, value.bytes) {
				return false
			}
			o.Multiplier = uint32(v)
		}
		b = b[n:]
	}
	return true
}

// wrapped reads the number of a UInt64Value or UInt32Value.
func wrapped(to *uint64, b []byte) bool {
	for len(b) > 0 {
		number, kind, value, n, ok := field(b)
		if !ok {
			return false
		}
		if number == 1 && kind == protowire.VarintType {
			*to = value.varint
		}
		b = b[n:]
	}
	return true
}

// fieldValue is a field's value, by its kind.
type fieldValue struct {
	varint uint64
	bytes  []byte
}

// field reads a field, and how long it is. Of kinds that no known field has it reads only the length.
func field(b []byte) (number protowire.Number, kind protowire.Type, value fieldValue, n int, ok bool) {
	number, kind, n = protowire.ConsumeTag(b)
	if n < 0 || number > protowire.MaxValidNumber {
		return 0, 0, value, 0, false
	}
	var m int
	switch kind {
	case protowire.VarintType:
		value.varint, m = protowire.ConsumeVarint(b[n:])
	case protowire.BytesType:
		value.bytes, m = protowire.ConsumeBytes(b[n:])
	default:
		m = protowire.ConsumeFieldValue(number, kind, b[n:])
	}
	return number, kind, value, n + m, m >= 0
}

// text is the bytes as a string, which must be short and UTF-8.
func text(b []byte, bounds *Bounds, what string) (string, error) {
	if len(b) > bounds.Bytes {
		reached.RLSText.Reached()
		return "", fmt.Errorf("%s has %d bytes, more than %d: send less, or raise max_bytes", what, len(b), bounds.Bytes)
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%s is not UTF-8", what)
	}
	return unsafe.String(unsafe.SliceData(b), len(b)), nil
}
