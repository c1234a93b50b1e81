package xds

import (
	"bytes"
	"testing"

	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// FuzzBounded: an accepted message decodes to at most the counted number of messages and the allowed depth, or is invalid.
func FuzzBounded(f *testing.F) {
	valid, err := proto.Marshal(&conf.RateLimitConfig{Name: "d", Domain: "d", Descriptors: []*conf.RateLimitDescriptor{
		{Key: "a", RateLimit: &conf.RateLimitPolicy{RequestsPerUnit: 1, Replaces: []*conf.RateLimitReplace{{Name: "x"}}}},
		{Key: "b", Descriptors: []*conf.RateLimitDescriptor{{Key: "c"}, {}}},
	}})
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{valid, valid[:len(valid)-1], bytes.Repeat([]byte{0x1a, 0}, 100), {0x1a, 2, 0x22, 0}, {0x1a, 0xff}, {0x1b, 0x1c}, bytes.Repeat(valid, 3)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		counted, r := 0, &conf.RateLimitConfig{}
		if bounded(b, resourceShape, 0, &counted) != nil || proto.Unmarshal(b, r) != nil {
			return
		}
		decoded, deepest := 0, 0
		var walk func(all []*conf.RateLimitDescriptor, depth int)
		walk = func(all []*conf.RateLimitDescriptor, depth int) {
			for _, d := range all {
				decoded++
				deepest = max(deepest, depth)
				if d.GetRateLimit() != nil {
					decoded += 1 + len(d.GetRateLimit().GetReplaces())
				}
				walk(d.GetDescriptors(), depth+1)
			}
		}
		if walk(r.GetDescriptors(), 1); decoded > counted || deepest > maxDepth+2 {
			t.Errorf("%d messages, %d counted, %d deep, in %x", decoded, counted, deepest, b)
		}
	})
}
