package rls

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice/rules"
)

// Generated messages are used for JSON and tests, not for serving calls.

// DecodeJSON decodes a RateLimitRequest in protobuf's JSON format. Unknown fields are errors.
func (r *Request) DecodeJSON(b []byte, bounds Bounds) error {
	bounds = bounds.WithDefaults()
	if err := bounds.checkSize(len(b)); err != nil {
		return err
	}
	var m pb.RateLimitRequest
	if err := protojson.Unmarshal(b, &m); err != nil {
		return err
	}
	r.FromProto(&m)
	return bounds.checkDescriptors(len(r.Descriptors))
}

// JSON encodes the response in protobuf's JSON format.
func (r *Response) JSON() ([]byte, error) { return protojson.Marshal(r.Proto()) }

// FromProto sets the request from a generated message.
func (r *Request) FromProto(m *pb.RateLimitRequest) {
	*r = Request{Domain: m.GetDomain(), HitsAddend: m.GetHitsAddend()}
	for _, from := range m.GetDescriptors() {
		d := Descriptor{Negative: from.GetIsNegativeHits()}
		for _, e := range from.GetEntries() {
			d.Entries = appendEntry(d.Entries, 0, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if limit := from.GetLimit(); limit != nil {
			d.HasOverride = true
			d.Override = Override{
				RequestsPerUnit: limit.GetRequestsPerUnit(), Unit: Unit(limit.GetUnit()),
				Multiplier: limit.GetUnitMultiplier().GetValue(),
			}
		}
		if hits := from.GetHitsAddend(); hits != nil {
			d.HasHits, d.Hits = true, hits.GetValue()
		}
		r.Descriptors = append(r.Descriptors, d)
	}
}

// Proto returns the request as a generated message.
func (r *Request) Proto() *pb.RateLimitRequest {
	m := &pb.RateLimitRequest{Domain: r.Domain, HitsAddend: r.HitsAddend}
	for _, from := range r.Descriptors {
		d := &common.RateLimitDescriptor{IsNegativeHits: from.Negative}
		for _, e := range from.Entries {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if o := from.Override; from.HasOverride {
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: o.RequestsPerUnit, Unit: typev3.RateLimitUnit(o.Unit), UnitMultiplier: multiplier(o.Multiplier),
			}
		}
		if from.HasHits {
			d.HitsAddend = wrapperspb.UInt64(from.Hits)
		}
		m.Descriptors = append(m.Descriptors, d)
	}
	return m
}

// Proto returns the response as a generated message.
func (r *Response) Proto() *pb.RateLimitResponse {
	m := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_Code(r.Overall), DynamicMetadata: r.Metadata}
	for i := range r.Statuses {
		from := &r.Statuses[i]
		s := &pb.RateLimitResponse_DescriptorStatus{
			Code: pb.RateLimitResponse_Code(from.Code), LimitRemaining: from.Remaining,
		}
		if l := from.Limit; from.HasLimit {
			s.CurrentLimit = &pb.RateLimitResponse_RateLimit{
				RequestsPerUnit: l.Requests, Unit: pb.RateLimitResponse_RateLimit_Unit(l.Unit), Name: l.Name,
				UnitMultiplier: multiplier(l.Multiplier),
			}
		}
		if from.HasReset {
			s.DurationUntilReset = &durationpb.Duration{Seconds: from.Reset}
		}
		m.Statuses = append(m.Statuses, s)
	}
	for _, h := range r.Headers {
		m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, &core.HeaderValue{Key: h.Name, Value: h.Value})
	}
	return m
}

func multiplier(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}
