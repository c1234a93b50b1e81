package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// An answer is a response or an error.
type answer struct {
	res *rls.RateLimitResponse
	err error
}

// String returns a line that is the same for equal answers: protojson's own spacing is random on purpose.
func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%v: %s", status.Code(a.err), status.Convert(a.err).Message())
	}
	return text(a.res)
}

func text(m proto.Message) string {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return err.Error()
	}
	canonical, err := json.Marshal(tree) // sorts keys
	if err != nil {
		return err.Error()
	}
	return string(canonical)
}

// same reports whether two answers are equal, except for a difference of one second in the remaining time of a window,
// because the servers are called one after the other.
func same(a, b answer) bool {
	if a.err != nil || b.err != nil {
		return a.String() == b.String()
	}
	if len(a.res.Statuses) != len(b.res.Statuses) {
		return false
	}
	a, b = answer{res: proto.CloneOf(a.res)}, answer{res: proto.CloneOf(b.res)}
	for i, s := range a.res.Statuses {
		o := b.res.Statuses[i]
		if !near(s.DurationUntilReset, o.DurationUntilReset) {
			return false
		}
		s.DurationUntilReset, o.DurationUntilReset = nil, nil
	}
	alignReset(a.res, b.res)
	tidyMetadata(a.res)
	tidyMetadata(b.res)
	return a.String() == b.String()
}

func near(a, b *durationpb.Duration) bool {
	if a == nil || b == nil {
		return a == b
	}
	return (a.AsDuration() - b.AsDuration()).Abs() <= time.Second
}

// alignReset sets two reset headers that differ by one second to the same value.
func alignReset(a, b *rls.RateLimitResponse) {
	if len(a.ResponseHeadersToAdd) != 3 || len(b.ResponseHeadersToAdd) != 3 {
		return
	}
	x, err := strconv.Atoi(a.ResponseHeadersToAdd[2].Value)
	if err != nil {
		return
	}
	y, err := strconv.Atoi(b.ResponseHeadersToAdd[2].Value)
	if err == nil && max(x-y, y-x) <= 1 {
		b.ResponseHeadersToAdd[2].Value = a.ResponseHeadersToAdd[2].Value
	}
}

// tidyMetadata removes the random spacing of the overrides, which are text.
func tidyMetadata(r *rls.RateLimitResponse) {
	for _, d := range r.GetDynamicMetadata().GetFields()["descriptors"].GetListValue().GetValues() {
		fields := d.GetStructValue().GetFields()
		if limit, ok := fields["limit"]; ok {
			words := strings.Fields(limit.GetStringValue())
			fields["limit"] = structpb.NewStringValue(strings.Join(words, " "))
		}
	}
}

// differ returns the differences between two sets of counters.
func differ(reference, sluice map[string]uint64) (lines []string) {
	names := map[string]bool{}
	for name := range reference {
		names[name] = true
	}
	for name := range sluice {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if reference[name] != sluice[name] {
			lines = append(lines, fmt.Sprintf("%s: reference %d, sluice %d", name, reference[name], sluice[name]))
		}
	}
	return lines
}

// sameHour reports whether no window of an hour or more has ended since.
func sameHour(t testing.TB, since time.Time) bool {
	t.Helper()
	if time.Now().Unix()/3600 == since.Unix()/3600 {
		return true
	}
	t.Log("an hour ended during the run, which reset counters: repeating the run")
	return false
}
