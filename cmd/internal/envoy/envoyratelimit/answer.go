package envoyratelimit

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
)

// answer fills the response from the counts.
func (s *Service) answer(req *rls.Request, m *scratch, resp *rls.Response) {
	var (
		tightest             = -1 // index of the most restrictive status, for the headers
		least         uint32 = math.MaxUint32
		over          bool   // a limit other than a quota is exceeded
		quotas, spent int
	)
	for i := range m.hits {
		h := &m.hits[i]
		resp.Statuses = append(resp.Statuses, s.status(h))
		st := &resp.Statuses[i]
		if st.HasLimit && st.Remaining < least {
			tightest, least = i, st.Remaining
		}
		if h.rule != nil && h.rule.Unlimited {
			continue
		}
		exceeded := st.Code == rls.CodeOverLimit
		switch {
		case s.response.Quota || h.rule != nil && h.rule.Quota:
			quotas++
			if exceeded {
				spent++
			}
		case exceeded:
			over, tightest, least = true, i, 0
		}
	}
	resp.Overall = rls.CodeOK
	if over || quotas > 0 && spent == quotas {
		resp.Overall = rls.CodeOverLimit
	}
	if s.response.Shadow && resp.Overall == rls.CodeOverLimit {
		resp.Overall = rls.CodeOK
		s.stats.GlobalShadowMode.Add(1)
	}
	if s.response.Headers && tightest >= 0 {
		s.headers(&resp.Statuses[tightest], resp)
	}
	if s.response.Metadata {
		resp.Metadata = metadata(req, m, resp)
	}
}

// status returns the status of a descriptor.
func (s *Service) status(h *hit) rls.Status {
	if h.limit == nil {
		st := rls.Status{Code: rls.CodeOK}
		if h.rule != nil { // unlimited
			st.Remaining = math.MaxUint32
		}
		return st
	}
	st := rls.Status{
		Code: rls.CodeOK, HasLimit: true, HasReset: true, Reset: h.reset,
		Limit: rls.Limit{Requests: h.limit.requests, Unit: h.limit.unit, Name: h.rule.Name},
	}
	over := h.cached || h.failed == sluice.SourceFailClosed || h.after > uint64(h.share)
	switch {
	case h.negative: // refunds are never denied
		st.Remaining = uint32(uint64(h.share) - min(h.after, uint64(h.share)))
		return st
	case !over:
		st.Remaining = uint32(uint64(h.share) - h.after)
	case !h.rule.Shadow:
		st.Code = rls.CodeOverLimit
	}
	s.countStats(h, over)
	return st
}

// countStats updates the statistics of a descriptor. If the hits cross a threshold, they are counted in part on either side.
func (s *Service) countStats(h *hit, over bool) {
	limit, near := uint64(h.share), s.nearLimit(h.share)
	// As in the reference, this wraps around if fewer hits were counted than requested, as with
	// STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: then all hits are beyond the threshold.
	before := h.after - h.addend
	beyond := h.addend // number of hits over the limit
	switch {
	case h.cached:
		h.stats.OverLimitWithLocalCache.Add(h.addend)
	case over && before < limit && h.failed != sluice.SourceFailClosed:
		beyond = h.after - limit
		h.stats.NearLimit.Add(limit - max(near, before))
	case over:
	default:
		switch {
		case h.after <= near:
		case before >= near:
			h.stats.NearLimit.Add(h.addend)
		default:
			h.stats.NearLimit.Add(h.after - near)
		}
		h.stats.WithinLimit.Add(h.addend)
		return
	}
	h.stats.OverLimit.Add(beyond)
	if h.rule.Shadow {
		h.stats.ShadowMode.Add(beyond)
	}
	if s.cache != nil && !h.cached && h.failed == sluice.SourceStore {
		s.cache.add(h.limit.counted, h.key, overLimit{s.now().Unix() + h.reset, h.limit.requests}, h.removals)
	}
}

// headers adds the headers that Envoy sends to the client.
func (s *Service) headers(st *rls.Status, resp *rls.Response) {
	resp.Headers = append(resp.Headers,
		rls.Header{Name: s.response.LimitHeader, Value: strconv.FormatUint(uint64(st.Limit.Requests), 10)},
		rls.Header{Name: s.response.RemainingHeader, Value: strconv.FormatUint(uint64(st.Remaining), 10)},
		rls.Header{Name: s.response.ResetHeader, Value: strconv.FormatInt(st.Reset, 10)},
	)
}

// metadata returns the dynamic metadata: the request, and the metadata of the rules whose descriptors are within their limits.
func metadata(req *rls.Request, m *scratch, resp *rls.Response) *structpb.Struct {
	fields := map[string]*structpb.Value{"domain": structpb.NewStringValue(req.Domain)}
	list := make([]*structpb.Value, len(req.Descriptors))
	merged := &structpb.Struct{}
	for i := range req.Descriptors {
		list[i] = descriptorMetadata(&req.Descriptors[i])
		if h := &m.hits[i]; h.limit != nil && h.limit.metadata != nil && resp.Statuses[i].Code == rls.CodeOK {
			mergeStruct(merged, h.limit.metadata)
		}
	}
	fields["descriptors"] = structpb.NewListValue(&structpb.ListValue{Values: list})
	if req.HitsAddend != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(req.HitsAddend))
	}
	if len(merged.GetFields()) > 0 {
		fields["metadata"] = structpb.NewStructValue(merged)
	}
	return &structpb.Struct{Fields: fields}
}

func descriptorMetadata(d *rls.Descriptor) *structpb.Value {
	entries := make([]*structpb.Value, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = rls.EntryText(e)
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if d.HasOverride { // in the text format of protobuf
		text := ""
		if d.Override.RequestsPerUnit != 0 {
			text = "requests_per_unit:" + strconv.FormatUint(uint64(d.Override.RequestsPerUnit), 10)
		}
		if d.Override.Unit.Known() {
			if text != "" {
				text += " "
			}
			unit := d.Override.Unit.String()
			if d.Override.Unit == rls.Week { // not in Envoy's list of units
				unit = strconv.Itoa(int(rls.Week))
			}
			text += "unit:" + unit
		}
		fields["limit"] = structpb.NewStringValue(text)
	}
	if d.HasHits {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(d.Hits))
	}
	return structpb.NewStructValue(&structpb.Struct{Fields: fields})
}

// mergeStruct adds the fields of from to to. Existing values are kept; two structs are merged.
func mergeStruct(to, from *structpb.Struct) {
	for name, value := range from.GetFields() {
		if to.Fields == nil {
			to.Fields = make(map[string]*structpb.Value)
		}
		have := to.Fields[name]
		switch {
		case have == nil:
			if below := value.GetStructValue(); below != nil { // a copy, because the metadata of the rule must not change
				clone := &structpb.Struct{}
				mergeStruct(clone, below)
				value = structpb.NewStructValue(clone)
			}
			to.Fields[name] = value
		case have.GetStructValue() != nil && value.GetStructValue() != nil:
			mergeStruct(have.GetStructValue(), value.GetStructValue())
		}
	}
}
