package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// A plainAnswer is the output of node/client.js.
type plainAnswer struct {
	Error    string        `json:"error"`
	Overall  string        `json:"overall"`
	Statuses []plainStatus `json:"statuses"`
	Headers  []string      `json:"headers"`
}

type plainStatus struct {
	Code      string `json:"code"`
	Limit     string `json:"limit"`
	Remaining uint32 `json:"remaining"`
	Reset     int64  `json:"reset"`
}

// TestIndependentClient sends the same requests with grpc-js, which has its own .proto files, and with the Go client,
// to two domains with the same rules. Both must get the same responses, so that Go is not only tested against itself.
func TestIndependentClient(t *testing.T) {
	installNode(t)
	basic := readRules(t, "basic.yaml")["basic.yaml"]
	rules := map[string]string{
		"basic.yaml": basic,
		"node.yaml":  strings.Replace(basic, "domain: basic", "domain: node", 1),
	}
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		s := startSluice(t, redistest.Start(t), rules, settings{"LIMIT_RESPONSE_HEADERS_ENABLED": "true"})
		g := newGenerator(t, 5, map[string]string{"basic.yaml": basic})
		var lines bytes.Buffer
		var want []plainAnswer
		for range soak(200) {
			req := g.request()
			for _, d := range req.Descriptors {
				d.HitsAddend = nil // the .proto files of the other client are older than the field
			}
			want = append(want, plain(s.ask(t, req)))
			if req = proto.CloneOf(req); req.Domain == "basic" {
				req.Domain = "node"
			}
			fmt.Fprintln(&lines, text(req))
		}
		got := s.askNode(t, &lines)
		if !sameHour(t, begun) && attempt == 0 {
			continue
		}
		if len(got) != len(want) {
			t.Fatalf("%d responses to %d requests", len(got), len(want))
		}
		for i := 0; i < len(want) && !t.Failed(); i++ {
			forgiveTime(&want[i], &got[i])
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("request %d: node got %+v, Go %+v", i, got[i], want[i])
			}
		}
		return
	}
}

// installNode installs node's packages. Without npm the test is skipped, or fails in CI.
func installNode(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("npm is not installed; on Debian: apt-get install nodejs npm")
		}
		t.Skip("npm is not installed; on Debian: apt-get install nodejs npm")
	}
	cmd := exec.Command("npm", "ci")
	cmd.Dir = "node"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

func (s *server) askNode(t *testing.T, requests *bytes.Buffer) (answers []plainAnswer) {
	t.Helper()
	cmd := exec.Command("node", "client.js", s.grpc)
	cmd.Dir, cmd.Stdin = "node", requests
	var out, faults bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Run(); err != nil {
		t.Fatalf("node: %v\n%s", err, &faults)
	}
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var a plainAnswer
		if err := decoder.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	return answers
}

// plain converts an answer to the other client's form.
func plain(a answer) (p plainAnswer) {
	if a.err != nil {
		p.Error = fmt.Sprintf("%d %s", status.Code(a.err), status.Convert(a.err).Message())
		return p
	}
	p.Overall, p.Statuses, p.Headers = a.res.OverallCode.String(), []plainStatus{}, []string{}
	for _, s := range a.res.Statuses {
		p.Statuses = append(p.Statuses, plainStatus{s.Code.String(), plainLimit(s.CurrentLimit), s.LimitRemaining, -1})
		if s.DurationUntilReset != nil {
			p.Statuses[len(p.Statuses)-1].Reset = s.DurationUntilReset.Seconds
		}
	}
	for _, h := range a.res.ResponseHeadersToAdd {
		p.Headers = append(p.Headers, h.Key+": "+h.Value)
	}
	return p
}

func plainLimit(l *rls.RateLimitResponse_RateLimit) string {
	if l == nil {
		return "none"
	}
	return fmt.Sprintf("%d %s %s", l.RequestsPerUnit, l.Unit, l.Name)
}

// forgiveTime removes the time that passed between the two clients: both must report an end of the window, and node's,
// which was requested later, must not be farther away.
func forgiveTime(early, late *plainAnswer) {
	if len(early.Statuses) != len(late.Statuses) {
		return
	}
	for i := range early.Statuses {
		if e, l := &early.Statuses[i], &late.Statuses[i]; e.Reset >= l.Reset && l.Reset > 0 {
			l.Reset = e.Reset
		}
	}
	if len(early.Headers) == 3 && len(late.Headers) == 3 {
		late.Headers[2] = early.Headers[2]
	}
}
