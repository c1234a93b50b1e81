package interop

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// A reply is a server's HTTP response.
type reply struct {
	status int
	kind   string // Content-Type
	body   string
}

func (s *server) post(t testing.TB, path, body string) reply {
	t.Helper()
	res, err := http.Post("http://"+s.http+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v\n%s", s.name, err, s.log)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header.Get("Content-Type"), string(text)}
}

// same reports whether the bodies are equal, as responses if they are valid, otherwise as text.
func (r reply) same(o reply) bool {
	if r.status != o.status || r.kind != o.kind {
		return false
	}
	var a, b rls.RateLimitResponse
	if protojson.Unmarshal([]byte(r.body), &a) != nil || protojson.Unmarshal([]byte(o.body), &b) != nil {
		return r.body == o.body
	}
	return same(answer{res: &a}, answer{res: &b})
}

// TestSameJSON sends the requests of TestSameAnswers over HTTP instead of gRPC.
func TestSameJSON(t *testing.T) {
	s := scenario{rules: everything, env: settings{"LIMIT_RESPONSE_HEADERS_ENABLED": "true"}}
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		rules := s.allRules(t, 1)
		theirs, ours := s.pair(t, rules)
		g := newGenerator(t, uint64(attempt), rules)
		var faults []string
		statuses := map[int]int{}
		for i := range soak(500) {
			body := text(g.request())
			want, got := theirs.post(t, "/json", body), ours.post(t, "/json", body)
			statuses[want.status]++
			if !want.same(got) && len(faults) < maxFaults {
				faults = append(faults, fmt.Sprintf("request %d: %s\nwant %+v\ngot  %+v", i, body, want, got))
			}
		}
		if !sameHour(t, begun) && attempt == 0 {
			continue
		}
		for _, fault := range faults {
			t.Error(fault)
		}
		for _, status := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusBadRequest} {
			if statuses[status] == 0 {
				t.Errorf("no response had status %d", status)
			}
		}
		return
	}
}

// TestSameJSONFaults sends invalid requests.
func TestSameJSONFaults(t *testing.T) {
	s := scenario{rules: everything}
	theirs, ours := s.pair(t, s.allRules(t, 1))
	for _, body := range []string{
		``, `{`, `[]`, `null`, `{}`, `{"domain":"basic"}`, `{"domain":"basic","descriptors":[]}`,
		`{"domain":"","descriptors":[{}]}`,
		`{"domain":"basic","descriptors":[{}]}`,
		`{"domain":"basic","descriptors":[{"entries":[{"key":"path","value":"/new"}]}],"unknown":1}`,
		`{"domain":"basic","descriptors":[{"entries":[{"key":"path","value":1}]}]}`,
		`{"domain":"basic","descriptors":[{"entries":[{"key":"path"}],"hits_addend":2}]}`,
		`{"domain":"basic","descriptors":[{"entries":[{"key":"path"}],"hitsAddend":"2"}],"hits_addend":3}`,
		`{"domain":"basic","descriptors":[{"entries":[{"key":"path"}],"hitsAddend":-1}]}`,
		`{"domain":"basic","domain":"basic","descriptors":[{}]}`,
		"{\"domain\":\"basic\",\"descriptors\":[{\"entries\":[{\"key\":\"\xff\"}]}]}",
		string(bytes.Repeat([]byte("["), 20_000)),
	} {
		want, got := theirs.post(t, "/json", body), ours.post(t, "/json", body)
		if !want.same(got) {
			t.Errorf("%.200q\nwant %+v\ngot  %+v", body, want, got)
		}
	}
	for _, path := range []string{"/healthcheck", "/nothing"} {
		want, got := theirs.post(t, path, ""), ours.post(t, path, "")
		if want != got {
			t.Errorf("%s\nwant %+v\ngot  %+v", path, want, got)
		}
	}
}
