package xds

import (
	"strings"
	"testing"
	"time"

	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice"
)

func policy(unit conf.RateLimitUnit, n uint32) *conf.RateLimitPolicy {
	return &conf.RateLimitPolicy{Unit: unit, RequestsPerUnit: n}
}

func config(name, domain string, ds ...*conf.RateLimitDescriptor) *conf.RateLimitConfig {
	return &conf.RateLimitConfig{Name: name, Domain: domain, Descriptors: ds}
}

func TestConvert(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"x": map[string]any{"y": 1}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := proto.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &conf.RateLimitDescriptor{Key: "b", Value: "v", RateLimit: &conf.RateLimitPolicy{
		Unit: unitWeek, RequestsPerUnit: 7, Name: "n", Replaces: []*conf.RateLimitReplace{{Name: "m"}},
	}, ShadowMode: true, DetailedMetric: true}
	newer := protowire.AppendVarint(protowire.AppendTag(nil, fieldQuotaMode, protowire.VarintType), 1)
	newer = protowire.AppendBytes(protowire.AppendTag(newer, fieldMetadata, protowire.BytesType), text)
	leaf.ProtoReflect().SetUnknown(newer)
	set, err := Convert([]*conf.RateLimitConfig{
		config("one", "d", &conf.RateLimitDescriptor{Key: "a", Descriptors: []*conf.RateLimitDescriptor{leaf}}),
		config("two", "e", &conf.RateLimitDescriptor{Key: "free", RateLimit: &conf.RateLimitPolicy{Unlimited: true}}),
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	l := set.DescriptorLimits("d")[0]
	if l.FullKey != "d.a.b_v" || !l.Shadow || !l.Quota || l.Name != "n" || len(l.Replaces) != 1 || !l.Source.DetailedMetric ||
		l.Metadata["x"].(map[string]any)["y"] != 1.0 {
		t.Errorf("the limit is %+v", l)
	}
	if r := l.Rules[0].Limit; r.Count != 7 || r.Window != 7*24*time.Hour || r.Algorithm != sluice.FixedWindow {
		t.Errorf("the limit is %v", r)
	}
	if free := set.DescriptorLimits("e")[0]; !free.Unlimited {
		t.Errorf("the limit is %+v", free)
	}
}

func TestConvertFaults(t *testing.T) {
	deep := &conf.RateLimitDescriptor{Key: "k", RateLimit: policy(conf.RateLimitUnit_DAY, 1)}
	for range 100 {
		deep = &conf.RateLimitDescriptor{Key: "k", Descriptors: []*conf.RateLimitDescriptor{deep}}
	}
	bad := &conf.RateLimitDescriptor{Key: "k"}
	bad.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, fieldMetadata, protowire.BytesType), "\x0f"))
	limited := func() *conf.RateLimitDescriptor {
		return &conf.RateLimitDescriptor{Key: "k", RateLimit: policy(conf.RateLimitUnit_SECOND, 1)}
	}
	for _, tt := range []struct {
		name      string
		resources []*conf.RateLimitConfig
		merge     bool
		want      string // empty: valid
	}{
		{"none", nil, false, ""},
		{"empty domain", []*conf.RateLimitConfig{config("r", "")}, false, "r: config file cannot have empty domain"},
		{"empty key", []*conf.RateLimitConfig{config("r", "d", &conf.RateLimitDescriptor{})}, false, "r: descriptor has empty key"},
		{
			"no unit",
			[]*conf.RateLimitConfig{config("r", "d", &conf.RateLimitDescriptor{Key: "k", RateLimit: policy(0, 1)})},
			false,
			"r: invalid rate limit unit 'UNKNOWN'",
		},
		{
			"odd unit",
			[]*conf.RateLimitConfig{config("r", "d", &conf.RateLimitDescriptor{Key: "k", RateLimit: policy(99, 1)})},
			false,
			"r: invalid rate limit unit '99'",
		},
		{"unlimited with unit", []*conf.RateLimitConfig{config("r", "d", &conf.RateLimitDescriptor{
			Key: "k", RateLimit: &conf.RateLimitPolicy{Unlimited: true, Unit: conf.RateLimitUnit_DAY},
		})}, false, "r: should not specify rate limit unit when unlimited"},
		{"twice", []*conf.RateLimitConfig{config("r", "d"), config("s", "d")}, false, "s: duplicate domain 'd' in config file"},
		{"twice, merged", []*conf.RateLimitConfig{config("r", "d"), config("s", "d", limited())}, true, ""},
		{
			"the same twice, merged",
			[]*conf.RateLimitConfig{config("r", "d", limited()), config("s", "d", limited())},
			true,
			"s: duplicate descriptor composite key 'd.k'",
		},
		{"too deep", []*conf.RateLimitConfig{config("r", "d", deep)}, false, "nested more than 64 deep"},
		{"metadata", []*conf.RateLimitConfig{config("r", "d", bad)}, false, "r: error parsing metadata: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, err := Convert(tt.resources, tt.merge)
			switch {
			case tt.want == "" && (err != nil || set == nil):
				t.Error(err)
			case tt.want != "" && (err == nil || set != nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
