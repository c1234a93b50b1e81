package rlstest

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Settings configure the service for a case.
type Settings struct {
	Shadow    bool // globally
	Quota     bool // globally
	Headers   bool // RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset are sent
	Metadata  bool // dynamic metadata is sent
	Overrides bool // limit overrides of requests are accepted
	Negative  bool // negative hits are accepted
}

// Case is the rules of one domain, and requests with their expected responses.
type Case struct {
	Name     string
	Settings Settings
	Native   bool // only for Sluice's own mode: Envoy's service responds differently
	// Rules are the entries below descriptors. "limit: N" means N per year, so that no window ends during a test.
	Rules string
	Steps []Step
}

// Step is a request and its expected response. [Ask] and [Tell] define their format.
type Step struct{ Ask, Want string }

// Group is a set of cases that one process can run.
type Group struct {
	Settings Settings
	Cases    []Case
}

// Groups returns the cases by their settings. Native cases are included only if native is set.
func Groups(native bool) []Group {
	var groups []Group
	for _, c := range cases {
		if c.Native && !native {
			continue
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Settings == c.Settings })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Settings: c.Settings})
		}
		groups[i].Cases = append(groups[i].Cases, c)
	}
	return groups
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// Domain returns the case's domain.
func (c *Case) Domain() string { return notWord.ReplaceAllString(strings.ToLower(c.Name), "-") }

var shortLimit = regexp.MustCompile(`\blimit: (\d+)`)

// File returns the case's rule file and its name.
func (c *Case) File() (name, text string) {
	rules := shortLimit.ReplaceAllString(c.Rules, "rate_limit: {unit: year, requests_per_unit: $1}")
	return c.Domain() + ".yaml", fmt.Sprintf("domain: %s\ndescriptors:\n%s", c.Domain(), rules)
}

// Write writes the group's rule files to a directory.
func (g *Group) Write(t testing.TB, directory string, write func(name, text string) error) {
	t.Helper()
	for i := range g.Cases {
		name, text := g.Cases[i].File()
		if err := write(filepath.Join(directory, name), text); err != nil {
			t.Fatal(err)
		}
	}
}

// Run sends the requests to a server that has the group's rules and settings.
func (g *Group) Run(t *testing.T, client pb.RateLimitServiceClient) {
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			for i, step := range c.Steps {
				if got := Answer(t.Context(), client, c.Domain(), step.Ask); got != step.Want {
					t.Errorf("step %d, %s:\ngot  %s\nwant %s", i+1, step.Ask, got, step.Want)
				}
			}
		})
	}
}

// Answer returns the server's response to a request, in the format of [Tell], or its error.
func Answer(ctx context.Context, client pb.RateLimitServiceClient, domain, ask string) string {
	req, err := Ask(domain, ask)
	if err != nil {
		return err.Error()
	}
	resp, err := client.ShouldRateLimit(ctx, req)
	if err != nil {
		return err.Error()
	}
	return Tell(resp)
}

// Ask parses a request: descriptors separated by |, each with its entries separated by commas, followed by options
// separated by spaces: hits:5, give:5 (negative hits), limit:10/MINUTE or limit:10/30xMINUTE. A last part @3 is the
// hits_addend of the request, and a first part domain:x is another domain.
//
//	user=ada,path=/a | user=ada hits:0 | @3
func Ask(domain, text string) (*pb.RateLimitRequest, error) {
	req := &pb.RateLimitRequest{Domain: domain}
	for part := range strings.SplitSeq(text, "|") {
		part = strings.TrimSpace(part)
		if hits, ok := strings.CutPrefix(part, "@"); ok {
			n, err := strconv.ParseUint(hits, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("rlstest: %q: %w", text, err)
			}
			req.HitsAddend = uint32(n)
			continue
		}
		if other, ok := strings.CutPrefix(part, "domain:"); ok {
			req.Domain = other
			continue
		}
		d, err := descriptor(part)
		if err != nil {
			return nil, fmt.Errorf("rlstest: %q: %w", text, err)
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, nil
}

func descriptor(text string) (*common.RateLimitDescriptor, error) {
	words := strings.Fields(text)
	d := &common.RateLimitDescriptor{}
	for entry := range strings.SplitSeq(words[0], ",") {
		k, v, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("entry %q: write key=value", entry)
		}
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: k, Value: v})
	}
	for _, word := range words[1:] {
		what, value, _ := strings.Cut(word, ":")
		switch what {
		case "hits", "give":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return nil, err
			}
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(n), what == "give"
		case "limit":
			count, unit, _ := strings.Cut(value, "/")
			n, err := strconv.ParseUint(count, 10, 32)
			if err != nil {
				return nil, err
			}
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(n)}
			if times, rest, ok := strings.Cut(unit, "x"); ok {
				m, err := strconv.ParseUint(times, 10, 32)
				if err != nil {
					return nil, err
				}
				d.Limit.UnitMultiplier, unit = wrapperspb.UInt32(uint32(m)), rest
			}
			d.Limit.Unit = typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit])
		default:
			return nil, fmt.Errorf("%q: write hits:5, give:5 or limit:10/MINUTE", word)
		}
	}
	return d, nil
}

// seconds are the lengths of units.
var seconds = map[string]int64{
	"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800, "MONTH": 30 * 86400, "YEAR": 365 * 86400,
}

// Tell formats a response: the overall code, then a status for each descriptor, separated by |, each with its code,
// limit and remaining hits; then # and the headers, and % and the dynamic metadata. A reset time is included only if it
// is not plausible.
//
//	OVER_LIMIT: OVER_LIMIT 5/YEAR left 0 | OK 10/12xHOUR name left 9 | OK # RateLimit-Limit=5
func Tell(resp *pb.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(resp.GetOverallCode().String() + ":")
	for i, s := range resp.GetStatuses() {
		if i > 0 {
			b.WriteString(" |")
		}
		b.WriteString(" " + s.GetCode().String())
		longest := int64(0)
		if l := s.GetCurrentLimit(); l != nil {
			times := ""
			if m := l.GetUnitMultiplier(); m != nil {
				times = fmt.Sprint(m.GetValue()) + "x"
			}
			fmt.Fprintf(&b, " %d/%s%s", l.GetRequestsPerUnit(), times, l.GetUnit())
			if l.GetName() != "" {
				b.WriteString(" " + l.GetName())
			}
			longest = seconds[l.GetUnit().String()] * int64(max(1, l.GetUnitMultiplier().GetValue()))
			fmt.Fprintf(&b, " left %d", s.GetLimitRemaining())
		} else if s.GetLimitRemaining() > 0 {
			fmt.Fprintf(&b, " left %d", s.GetLimitRemaining())
		}
		switch reset := s.GetDurationUntilReset(); {
		case reset == nil && longest > 0:
			b.WriteString(" without reset")
		case reset != nil && (reset.GetSeconds() < 1 || reset.GetSeconds() > longest || reset.GetNanos() != 0):
			fmt.Fprintf(&b, " reset in %v", reset.AsDuration())
		}
	}
	for i, h := range resp.GetResponseHeadersToAdd() {
		b.WriteString([]string{", ", " # "}[btoi(i == 0)])
		value := h.GetValue()
		if n, err := strconv.ParseInt(value, 10, 64); strings.HasSuffix(h.GetKey(), "Reset") && err == nil && n > 0 && n <= seconds["YEAR"] {
			value = "soon"
		}
		b.WriteString(h.GetKey() + "=" + value)
	}
	if m := resp.GetDynamicMetadata(); m != nil {
		fmt.Fprintf(&b, " %% %v", m.AsMap())
	}
	return b.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
