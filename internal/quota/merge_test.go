package quota_test

import (
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/quota"
)

// headersOf returns a header of alternating names and values. A name may occur several times.
func headersOf(pairs ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func quotaOf(limit, remaining, reset string) http.Header {
	return headersOf("X-RateLimit-Limit", limit, "X-RateLimit-Remaining", remaining, "X-RateLimit-Reset", reset)
}

func TestMergeHeaders(t *testing.T) {
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	epoch := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	for _, tt := range []struct {
		name                 string
		ours, upstream, want http.Header
	}{
		{
			"nothing of the upstream's", quotaOf("10", "9", "1"), headersOf("Server", "x"),
			headersOf("X-Ratelimit-Limit", "10", "X-Ratelimit-Remaining", "9", "X-Ratelimit-Reset", "1", "Server", "x"),
		},
		{"nothing of ours", nil, quotaOf("10", "9", "1"), quotaOf("10", "9", "1")},
		{"ours is stricter", quotaOf("10", "9", "1"), quotaOf("10", "10", "1"), quotaOf("10", "9", "1")},
		{"the upstream is stricter", quotaOf("10", "9", "1"), quotaOf("10", "8", "1"), quotaOf("10", "8", "1")},
		{"a smaller share of more", quotaOf("2", "1", "1"), quotaOf("100", "10", "1"), quotaOf("2", "1", "1")},
		{"equal, the upstream later", quotaOf("10", "0", "1"), quotaOf("50", "0", "2"), quotaOf("50", "0", "2")},
		{"equal, ours later", quotaOf("10", "0", "3"), quotaOf("50", "0", "2"), quotaOf("10", "0", "3")},
		{"equal, the upstream's an epoch", quotaOf("10", "0", "60"), quotaOf("50", "0", epoch), quotaOf("50", "0", epoch)},
		{"equal, the upstream's a duration", quotaOf("10", "0", "1"), quotaOf("50", "0", "6m0s"), quotaOf("50", "0", "6m0s")},
		{"lists of an early draft", quotaOf("10", "9", "1"), quotaOf("10, 10;w=1", "3, 3;w=1", "1"), quotaOf("10, 10;w=1", "3, 3;w=1", "1")},
		{"not to be compared", quotaOf("10", "9", "1"), quotaOf("many", "some", "soon"), quotaOf("many", "some", "soon")},
		{
			"a part of the upstream's", quotaOf("10", "9", "1"), headersOf("X-Ratelimit-Remaining", "3"),
			headersOf("X-Ratelimit-Remaining", "3"),
		},
		{"a smaller limit only", quotaOf("10", "9", "1"), headersOf("X-Ratelimit-Limit", "5"), headersOf("X-Ratelimit-Limit", "5")},
		{"a larger limit only", quotaOf("10", "9", "1"), headersOf("X-Ratelimit-Limit", "50"), quotaOf("10", "9", "1")},
		{"a reset only", quotaOf("10", "9", "1"), headersOf("X-Ratelimit-Reset", "50"), quotaOf("10", "9", "1")},
		{
			"ours unknown", headersOf("X-Ratelimit-Degraded", "open"), quotaOf("10", "9", "1"),
			headersOf("X-Ratelimit-Degraded", "open", "X-Ratelimit-Limit", "10", "X-Ratelimit-Remaining", "9", "X-Ratelimit-Reset", "1"),
		},
		{
			"other spellings", quotaOf("10", "1", "1"), headersOf("X-Rate-Limit-Remaining", "5", "RateLimit-Remaining", "6", "X-Ratelimit-Used", "7"),
			headersOf("X-Ratelimit-Limit", "10", "X-Ratelimit-Remaining", "1", "X-Ratelimit-Reset", "1",
				"X-Rate-Limit-Remaining", "5", "Ratelimit-Remaining", "6", "X-Ratelimit-Used", "7"),
		},
		{
			"retry later", headersOf("Retry-After", "3", "X-Ratelimit-Retry-After", "3"), headersOf("Retry-After", "5", "X-Ratelimit-Retry-After", "5"),
			headersOf("Retry-After", "5", "X-Ratelimit-Retry-After", "5"),
		},
		{"retry sooner", headersOf("Retry-After", "3"), headersOf("Retry-After", "2.5"), headersOf("Retry-After", "3")},
		{"retry at a date", headersOf("Retry-After", "3"), headersOf("Retry-After", date), headersOf("Retry-After", date)},
		{"retry at nonsense", headersOf("Retry-After", "3"), headersOf("Retry-After", "soon"), headersOf("Retry-After", "3")},
		{"retry only there", nil, headersOf("Retry-After", "7"), headersOf("Retry-After", "7")},
		{
			"lists", headersOf("Ratelimit-Policy", `"a";q=1`, "Ratelimit", `"a";r=0`), headersOf("RateLimit-Policy", `"b";q=2`, "RateLimit", `"b";r=1`),
			headersOf("Ratelimit-Policy", `"a";q=1`, "Ratelimit-Policy", `"b";q=2`, "Ratelimit", `"a";r=0`, "Ratelimit", `"b";r=1`),
		},
		{
			"policies of one name", headersOf("Ratelimit-Policy", `"a,\"b";q=1, "c";q=2`, "Ratelimit", `"a,\"b";r=0, "c";r=2`),
			headersOf("RateLimit-Policy", `"a,\"b";q=9`, "RateLimit", `"a,\"b";r=8`),
			headersOf("Ratelimit-Policy", `"outer/a,\"b";q=1, "c";q=2`, "Ratelimit-Policy", `"a,\"b";q=9`,
				"Ratelimit", `"outer/a,\"b";r=0, "c";r=2`, "Ratelimit", `"a,\"b";r=8`),
		},
		{
			"a policy as a token", headersOf("Ratelimit", `"default";r=0`), headersOf("RateLimit", `default;r=8`),
			headersOf("Ratelimit", `"outer/default";r=0`, "Ratelimit", `default;r=8`),
		},
		{
			"all else", headersOf("Vary", "Origin"), headersOf("Vary", "Accept", "Set-Cookie", "a", "Set-Cookie", "b"),
			headersOf("Vary", "Origin", "Vary", "Accept", "Set-Cookie", "a", "Set-Cookie", "b"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, upstream := tt.ours.Clone(), tt.upstream.Clone()
			if ours == nil {
				ours = make(http.Header)
			}
			quota.Merge(ours, upstream)
			if !reflect.DeepEqual(ours, tt.want) {
				t.Errorf("got  %v\nwant %v", ours, tt.want)
			}
			if !reflect.DeepEqual(upstream, tt.upstream) {
				t.Errorf("the upstream's became %v", upstream)
			}
		})
	}
}

// TestMergeHeadersNeverMore: the merged headers allow no more requests and no earlier retry than either of the two, and
// contain every field of both.
func TestMergeHeadersNeverMore(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		draw := func() http.Header {
			h := make(http.Header)
			if limit := rng.IntN(20); limit > 0 {
				h.Set("X-Ratelimit-Limit", strconv.Itoa(limit))
				h.Set("X-Ratelimit-Remaining", strconv.Itoa(rng.IntN(limit+1)))
				h.Set("X-Ratelimit-Reset", strconv.Itoa(rng.IntN(5)))
			}
			if after := rng.IntN(10); after > 5 {
				h.Set("Retry-After", strconv.Itoa(after))
			}
			return h
		}
		ours, upstream := draw(), draw()
		merged := ours.Clone()
		quota.Merge(merged, upstream)
		number := func(h http.Header, name string) int { n, _ := strconv.Atoi(h.Get(name)); return n }
		for _, h := range []http.Header{ours, upstream} {
			for name := range h {
				if merged.Get(name) == "" {
					t.Fatalf("seed %d: %s is missing: %v and %v became %v", seed, name, ours, upstream, merged)
				}
			}
			if h.Get("X-Ratelimit-Remaining") != "" && number(merged, "X-Ratelimit-Remaining") > number(h, "X-Ratelimit-Remaining") ||
				number(merged, "Retry-After") < number(h, "Retry-After") ||
				number(merged, "X-Ratelimit-Remaining") > number(merged, "X-Ratelimit-Limit") {
				t.Fatalf("seed %d: %v and %v became %v", seed, ours, upstream, merged)
			}
		}
	}
}

// TestMergeAllocations: merging allocates nothing if the upstream sends no quota.
func TestMergeAllocations(t *testing.T) {
	ours, upstream := http.Header{}, http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"3"}, "Date": {"now"}}
	if got := testing.AllocsPerRun(100, func() {
		clear(ours)
		ours["X-Ratelimit-Limit"] = upstream["Date"]
		quota.Merge(ours, upstream)
	}); got > 0 || len(ours) != 4 {
		t.Errorf("%v allocations for %v", got, ours)
	}
}
