package interop

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSameMetrics compares the Prometheus metrics, so that dashboards made for the reference continue to work.
func TestSameMetrics(t *testing.T) {
	s := scenario{rules: everything, env: settings{"USE_STATSD": "false", "USE_PROMETHEUS": "true"}}
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		rules := s.allRules(t, 1)
		theirs, ours := s.pair(t, rules)
		g := newGenerator(t, 42, rules)
		for range soak(300) {
			req := g.request()
			theirs.ask(t, req)
			ours.ask(t, req)
		}
		faults := settle(func() []string { return differ(theirs.scrape(t), ours.scrape(t)) })
		if !sameHour(t, begun) && attempt == 0 {
			continue
		}
		for _, fault := range faults[:min(len(faults), 20)] {
			t.Error(fault)
		}
		return
	}
}

// named matches the metrics of the service itself. Durations are compared by their count only.
var named = regexp.MustCompile(`^(ratelimit_service_[a-z_]+)(\{[^}]*\})? ([0-9.e+]+)$`)

// scrape returns a server's metrics by name and labels.
func (s *server) scrape(t testing.TB) map[string]uint64 {
	t.Helper()
	res, err := http.Get("http://" + s.metric + "/metrics")
	if err != nil {
		t.Fatalf("%s: %v\n%s", s.name, err, s.log)
	}
	defer res.Body.Close()
	all := map[string]uint64{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		m := named.FindStringSubmatch(lines.Text())
		if m == nil || strings.HasSuffix(m[1], "_bucket") || strings.HasSuffix(m[1], "_sum") {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		// A counter of 0 is equal to a missing one.
		if n := uint64(value); n > 0 {
			all[fmt.Sprint(m[1], m[2])] += n
		}
	}
	return all
}
