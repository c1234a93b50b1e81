package rls

import (
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice/rules"
)

// metadata returns the dynamic metadata that Envoy's service sends for access logs and other filters: the request, and the
// metadata of the rules whose descriptors are OK.
func metadata(a *answering, req *Request, resp *Response) *structpb.Struct {
	all := &structpb.Struct{Fields: map[string]*structpb.Value{"domain": structpb.NewStringValue(req.Domain)}}
	list := &structpb.ListValue{}
	for i := range req.Descriptors {
		list.Values = append(list.Values, structpb.NewStructValue(describe(&req.Descriptors[i])))
	}
	all.Fields["descriptors"] = structpb.NewListValue(list)
	if req.HitsAddend != 0 {
		all.Fields["hitsAddend"] = structpb.NewNumberValue(float64(req.HitsAddend))
	}
	var merged *structpb.Struct
	for i := range a.decided.Matched.Matches {
		m := &a.decided.Matched.Matches[i]
		if m.Limit == nil || m.Replaced || len(m.Limit.Metadata) == 0 || resp.Statuses[i].Code != CodeOK {
			continue
		}
		one, err := structpb.NewStruct(m.Limit.Metadata)
		if err != nil {
			continue // does not happen: the rules were validated
		}
		if merged == nil {
			merged = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		merge(merged, one)
	}
	if merged != nil {
		all.Fields["metadata"] = structpb.NewStructValue(merged)
	}
	return all
}

// describe returns the metadata of one descriptor.
func describe(d *Descriptor) *structpb.Struct {
	one := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	entries := &structpb.ListValue{}
	for _, e := range d.Entries {
		entries.Values = append(entries.Values, EntryText(e))
	}
	one.Fields["entries"] = structpb.NewListValue(entries)
	if d.HasOverride {
		limit := (&Request{Descriptors: []Descriptor{*d}}).Proto().GetDescriptors()[0].GetLimit()
		one.Fields["limit"] = structpb.NewStringValue(prototext.MarshalOptions{}.Format(limit))
	}
	if d.HasHits {
		one.Fields["hitsAddend"] = structpb.NewNumberValue(float64(d.Hits))
	}
	return one
}

// EntryText returns an entry for metadata: key=value, with U+FFFD instead of bytes that are not UTF-8, because protobuf
// strings must be valid UTF-8.
func EntryText(e rules.Entry) *structpb.Value {
	return structpb.NewStringValue(strings.ToValidUTF8(e.Key+"="+e.Value, "\uFFFD"))
}

// merge adds the missing fields of from. It merges structs, and keeps the first of two other values.
func merge(into, from *structpb.Struct) {
	for k, v := range from.GetFields() {
		old, there := into.Fields[k]
		switch {
		case !there:
			into.Fields[k] = v
		case old.GetStructValue() != nil && v.GetStructValue() != nil:
			merge(old.GetStructValue(), v.GetStructValue())
		}
	}
}
