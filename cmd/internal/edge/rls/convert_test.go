package rls_test

import (
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
)

// jsonRequest is a request in JSON.
type jsonRequest struct{ m *pb.RateLimitRequest }

func (j *jsonRequest) String() string { return protojson.Format(j.m) }

func TestJSON(t *testing.T) {
	want := full()
	var r rls.Request
	if err := r.DecodeJSON([]byte((&jsonRequest{want}).String()), rls.Bounds{}); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(r.Proto(), want) {
		t.Errorf("got %v, want %v", r.Proto(), want)
	}
	for _, text := range []string{`{"domain": "d", "domian": "e"}`, `{"domain": 1}`, `{`, ``, `[]`} {
		if err := r.DecodeJSON([]byte(text), rls.Bounds{}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	resp := rls.Response{Overall: rls.CodeOK, Statuses: []rls.Status{{
		Code: rls.CodeOK, HasLimit: true, Limit: rls.Limit{Requests: 5, Unit: rls.Minute}, Remaining: 4, HasReset: true, Reset: 49,
	}}}
	b, err := resp.JSON()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(string(b), " ", "") // protojson adds spaces at random
	if want := `{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":5,"unit":"MINUTE"},` +
		`"limitRemaining":4,"durationUntilReset":"49s"}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestUnits(t *testing.T) {
	for number, name := range pb.RateLimitResponse_RateLimit_Unit_name {
		if u := rls.Unit(number); u.String() != name || u.Known() != (name != "UNKNOWN") || (u.Seconds() > 0) != u.Known() {
			t.Errorf("unit %d is %v of %d s, want %s", number, u, u.Seconds(), name)
		}
	}
	for _, u := range []rls.Unit{-1, 8, 1 << 30} {
		if u.Known() || u.Seconds() != 0 || u.String() != "UNKNOWN" {
			t.Errorf("there is a unit %d", u)
		}
	}
}
