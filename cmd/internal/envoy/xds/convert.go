package xds

import (
	"errors"
	"fmt"
	"time"

	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// Convert compiles resources. If merge is set, a domain may be split over several resources. Errors begin with the name of
// the resource and have the texts of Envoy's service.
func Convert(resources []*conf.RateLimitConfig, merge bool) (*rules.Set, error) {
	var cfg rules.Config
	c := &converter{}
	first := make(map[string]int)
	for _, r := range resources {
		c.at = rules.Position{File: r.GetName()}
		domain := rules.Domain{Pos: c.at, Name: r.GetDomain(), Descriptors: c.descriptors(r.GetDescriptors(), 0)}
		if i, ok := first[domain.Name]; ok && merge {
			cfg.Domains[i].Descriptors = append(cfg.Domains[i].Descriptors, domain.Descriptors...)
			continue
		}
		first[domain.Name] = len(cfg.Domains)
		cfg.Domains = append(cfg.Domains, domain)
	}
	set, err := rules.New(cfg)
	if err := errors.Join(append(c.faults, err)...); err != nil {
		return nil, err
	}
	return set, nil
}

type converter struct {
	at     rules.Position
	faults []error
}

func (c *converter) fault(format string, args ...any) {
	c.faults = append(c.faults, &rules.Error{Pos: c.at, Msg: fmt.Sprintf(format, args...)})
}

// maxDepth is the maximum nesting depth of descriptors. Descriptors of requests have fewer entries.
const maxDepth = 64

func (c *converter) descriptors(from []*conf.RateLimitDescriptor, depth int) []rules.DescriptorRule {
	if depth == maxDepth {
		if len(from) > 0 {
			c.fault("descriptors are nested more than %d deep: use fewer levels", maxDepth)
		}
		return nil
	}
	var all []rules.DescriptorRule
	for _, d := range from {
		r := rules.DescriptorRule{
			Pos: c.at, Key: d.GetKey(), Value: d.GetValue(), Shadow: d.GetShadowMode(),
			DetailedMetric: d.GetDetailedMetric(), Descriptors: c.descriptors(d.GetDescriptors(), depth+1),
		}
		c.newer(&r, d.ProtoReflect().GetUnknown())
		if p := d.GetRateLimit(); p != nil {
			c.policy(&r, p)
		}
		all = append(all, r)
	}
	return all
}

var windows = map[conf.RateLimitUnit]time.Duration{
	conf.RateLimitUnit_SECOND: time.Second, conf.RateLimitUnit_MINUTE: time.Minute, conf.RateLimitUnit_HOUR: time.Hour,
	conf.RateLimitUnit_DAY: 24 * time.Hour, unitMonth: 30 * 24 * time.Hour, unitYear: 365 * 24 * time.Hour,
	unitWeek: 7 * 24 * time.Hour,
}

// Field numbers that are newer than the generated code.
const (
	unitMonth, unitYear, unitWeek conf.RateLimitUnit = 5, 6, 7

	fieldQuotaMode protowire.Number = 7
	fieldMetadata  protowire.Number = 8
)

// newer parses fields of a descriptor that are unknown to the generated code.
func (c *converter) newer(r *rules.DescriptorRule, b []byte) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return // cannot happen: the decoder has checked it
		}
		b = b[n:]
		value := b[:max(0, protowire.ConsumeFieldValue(number, kind, b))]
		b = b[len(value):]
		switch {
		case number == fieldQuotaMode && kind == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			r.Quota = v != 0
		case number == fieldMetadata && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(value)
			var m structpb.Struct
			if err := proto.Unmarshal(text, &m); err != nil {
				c.fault("error parsing metadata: %v", err)
				continue
			}
			r.Metadata = m.AsMap()
		}
	}
}

func (c *converter) policy(r *rules.DescriptorRule, p *conf.RateLimitPolicy) {
	r.Name, r.Unlimited = p.GetName(), p.GetUnlimited()
	for _, other := range p.GetReplaces() {
		r.Replaces = append(r.Replaces, other.GetName())
	}
	window, valid := windows[p.GetUnit()]
	switch {
	case r.Unlimited && valid:
		c.fault("should not specify rate limit unit when unlimited")
	case r.Unlimited:
	case !valid:
		c.fault("invalid rate limit unit '%s'", p.GetUnit())
	default:
		limit := sluice.Limit{Count: int64(p.GetRequestsPerUnit()), Window: window, Algorithm: sluice.FixedWindow}
		r.Limits = []rules.Limit{{Pos: c.at, Limit: limit}}
	}
}
