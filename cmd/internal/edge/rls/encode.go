package rls

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Append writes the response behind b.
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

// All field numbers are below 16, so that a tag is one byte. What is zero or empty is not written.

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
