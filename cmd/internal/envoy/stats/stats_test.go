package stats

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

func TestSanitize(t *testing.T) {
	for name, want := range map[string]string{
		"d.k_v": "d.k_v", "a:b|c": "a_b_c", "d.ip_10.0.0.1": "d.ip_10_0_0_1", "10.0.0.1.5": "10_0_0_1.5", "1.2.3": "1.2.3",
		"d\nother:1|c\r": "d_other_1_c_",
	} {
		if got := Sanitize(name); got != want {
			t.Errorf("%s becomes %s, want %s", name, got, want)
		}
	}
}

// all returns the counters that are not 0.
func (s *Stats) all() map[string]uint64 {
	m := make(map[string]uint64)
	s.Each(func(name string, value uint64) { m[name] = value })
	return m
}

func TestNames(t *testing.T) {
	s := New(2)
	limits := s.Replace([]string{"d.a", "d.a:b", "d.a|b"})
	if limits[1] != limits[2] || limits[0] == limits[1] {
		t.Error("limits of the same name must share their counts, and others must not")
	}
	limits[0].TotalHits.Add(1)
	s.Made([]byte("d.x_1"), "d").TotalHits.Add(2)
	s.Made([]byte("d.x_2"), "d").TotalHits.Add(3)
	s.Made([]byte("d.x_3"), "d").TotalHits.Add(4)
	s.Made([]byte("d.x_4"), "d").TotalHits.Add(5)
	s.Made([]byte("d.x_1"), "d").TotalHits.Add(6)
	want := map[string]uint64{
		"ratelimit.service.rate_limit.d.a.total_hits": 1, "ratelimit.service.rate_limit.d.x_1.total_hits": 8,
		"ratelimit.service.rate_limit.d.x_2.total_hits": 3, "ratelimit.service.rate_limit.d.other.total_hits": 9,
	}
	if got := s.all(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if again := s.Replace([]string{"d.a", "d.x_1"}); again[0] != limits[0] {
		t.Error("the counts of a name that remains are reset")
	}
	if got := s.all()["ratelimit.service.rate_limit.d.x_2.total_hits"]; got != 3 {
		t.Errorf("after new rules the limits with values of requests have %d", got)
	}
}

func TestNamesAreBounded(t *testing.T) {
	s := New(100)
	for i := range 10_000 {
		s.Made(fmt.Appendf(nil, "d.x_%d", i), "d").TotalHits.Add(1)
		s.NotFound(fmt.Sprint(i))
	}
	s.Made([]byte(strings.Repeat("x", maxName+1)), "e").TotalHits.Add(1)
	if got := s.all()["ratelimit.service.rate_limit.e.other.total_hits"]; got != 1 {
		t.Errorf("a name beyond maxName is counted %d times", got)
	}
	if n := len(s.all()); n != 100+2+maxDomains+1 {
		t.Errorf("there are %d names", n)
	}
}

// receive starts a statsd server and returns its address and the received lines.
func receive(t *testing.T, network string) (addr string, lines <-chan string) {
	t.Helper()
	out := make(chan string, 100_000)
	if network == "udp" {
		l, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			b := make([]byte, 64<<10)
			for {
				n, _, err := l.ReadFrom(b)
				if err != nil {
					return
				}
				for line := range strings.Lines(string(b[:n])) {
					out <- strings.TrimSuffix(line, "\n")
				}
			}
		}()
		return l.LocalAddr().String(), out
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			for s := bufio.NewScanner(c); s.Scan(); {
				out <- s.Text()
			}
		}
	}()
	return l.Addr().String(), out
}

// take receives n lines and sorts them.
func take(t *testing.T, n int, from <-chan string) (lines []string) {
	t.Helper()
	for range n {
		select {
		case line := <-from:
			lines = append(lines, line)
		case <-time.After(20 * time.Second):
			t.Fatalf("only %d lines: %q", len(lines), lines)
		}
	}
	slices.Sort(lines)
	return lines
}

func filled() *Stats {
	s := New(10)
	s.Replace([]string{"d.a"})[0].TotalHits.Add(5)
	s.ShouldRateLimit.Requests.Add(3)
	for _, ms := range []time.Duration{0, 0, 7} {
		s.ShouldRateLimit.Responses.Observe(ms * time.Millisecond)
	}
	s.Gauges(func(yield func(string, uint64)) { yield("localcache.entryCount", 4) })
	return s
}

func TestStatsd(t *testing.T) {
	addr, lines := receive(t, "tcp")
	s := filled()
	k := &Sink{Addr: addr, Tags: map[string]string{"zone": "a", "env": "prod"}, stats: s, last: map[string]uint64{}}
	k.flush()
	const tags = ".__env=prod.__zone=a:"
	want := []string{
		"ratelimit.localcache.entryCount" + tags + "4|g",
		"ratelimit.service.rate_limit.d.a.total_hits" + tags + "5|c",
		"ratelimit_server.ShouldRateLimit.response_time" + tags + "0|ms",
		"ratelimit_server.ShouldRateLimit.response_time" + tags + "0|ms",
		"ratelimit_server.ShouldRateLimit.response_time" + tags + "7|ms",
		"ratelimit_server.ShouldRateLimit.total_requests" + tags + "3|c",
	}
	if got := take(t, len(want), lines); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	s.ConfigLoadError.Add(1)
	s.ShouldRateLimit.Requests.Add(2)
	k.flush() // only the differences of changed counters, and gauges
	want = []string{
		"ratelimit.localcache.entryCount" + tags + "4|g", "ratelimit.service.config_load_error" + tags + "1|c",
		"ratelimit_server.ShouldRateLimit.total_requests" + tags + "2|c",
	}
	if got := take(t, len(want), lines); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestDogStatsd(t *testing.T) {
	addr, lines := receive(t, "udp")
	k := &Sink{
		Addr: addr, Dog: true, Tags: map[string]string{"env": "prod"}, stats: filled(), last: map[string]uint64{},
		Rewrite: []Rewrite{{
			Pattern: regexp.MustCompile(`^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.total_hits$`), Name: "hits.$1",
			Tags: map[string]string{"key": "${2}", "odd": "$9"},
		}},
	}
	k.flush()
	want := []string{
		"hits.d:5|c|#env:prod,key:a,odd:",
		"ratelimit.localcache.entryCount:4|g|#env:prod",
		"ratelimit_server.ShouldRateLimit.response_time:0|ms|#env:prod",
		"ratelimit_server.ShouldRateLimit.response_time:0|ms|#env:prod",
		"ratelimit_server.ShouldRateLimit.response_time:7|ms|#env:prod",
		"ratelimit_server.ShouldRateLimit.total_requests:3|c|#env:prod",
	}
	if got := take(t, len(want), lines); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// Beyond maxTimes, one line represents several equal times.
func TestManyTimes(t *testing.T) {
	var timer Timer
	for i := range 4 * maxTimes {
		timer.Observe(time.Duration(i%4/3) * time.Millisecond) // 3 of 4 times are 0
	}
	lines := (&Sink{}).times("t", &timer)
	if got := strings.Join(slices.Compact(lines), ""); len(lines) != maxTimes || got != "t:0|ms|@0.25\nt:1|ms|@0.25\n" {
		t.Errorf("%d lines: %s", len(lines), got)
	}
	if lines := (&Sink{}).times("t", &timer); len(lines) != 0 {
		t.Errorf("they are sent again: %q", lines)
	}
}

// While the sink is unavailable, counts are accumulated. They are sent when it is available again.
func TestStatsdAway(t *testing.T) {
	addr := tcptest.FreeAddress(t)
	var told []string
	s := New(1)
	k := &Sink{Addr: addr, stats: s, last: map[string]uint64{}, Failed: func(err error) { told = append(told, fmt.Sprint(err != nil)) }}
	for range 3 {
		s.ServiceError.Add(1)
		k.flush()
	}
	there, lines := receive(t, "tcp")
	k.Addr = there
	k.flush()
	if got := take(t, 1, lines); got[0] != "ratelimit.service.call.should_rate_limit.service_error:3|c" {
		t.Error(got)
	}
	if !slices.Equal(told, []string{"true", "false"}) {
		t.Errorf("Failed was called with %v", told)
	}
}

// Run sends the remaining counts when the context ends.
func TestLastFlush(t *testing.T) {
	addr, lines := receive(t, "tcp")
	s := New(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		(&Sink{Addr: addr, Every: time.Hour}).Run(ctx, s)
		close(done)
	}()
	s.ServiceError.Add(1)
	cancel()
	<-done
	take(t, 1, lines)
}

func TestFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		s.ServiceError.Add(1)
		failed := 0
		k := &Sink{Addr: "not an address", Every: time.Second, Failed: func(error) { failed++ }}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.Run(ctx, s)
		<-time.After(1500 * time.Millisecond)
		synctest.Wait()
		if failed != 1 {
			t.Errorf("after a second and a half there were %d flushes", failed)
		}
	})
}

func page(s *Stats, m *Mapper, tags map[string]string) string {
	w := httptest.NewRecorder()
	p := &Page{Stats: s, Mapper: m, Tags: tags}
	p.ServeHTTP(w, nil)
	w.Body.Reset()
	p.ServeHTTP(w, nil) // from the cache
	return w.Body.String()
}

func TestPage(t *testing.T) {
	s := filled()
	all := s.Replace([]string{"d.a", "d.a.b", "d.a.b.c", "d.a.b.d", "d", `d.q"\`})
	for i, l := range all {
		l.TotalHits.Add(uint64(i + 1))
		l.OverLimitWithLocalCache.Add(1)
	}
	s.RedisError.Add(2)
	got := page(s, DefaultMapper(false), nil)
	for _, want := range []string{
		"# TYPE ratelimit_service_rate_limit_total_hits counter\n",
		`ratelimit_service_rate_limit_total_hits{domain="d",key1="a"} 6` + "\n",
		`ratelimit_service_rate_limit_total_hits{domain="d",key1="a",key2="b"} 9` + "\n", // further levels are not distinguished
		`ratelimit_service_rate_limit_total_hits{domain="d",key1="q\"\\"} 6` + "\n",
		`ratelimit_service_rate_limit_d_total_hits 5` + "\n",
		`ratelimit_service_should_rate_limit_error{err_type="redis_error"} 2` + "\n",
		`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 3` + "\n",
		`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="0.005"} 2` + "\n",
		`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="0.01"} 3` + "\n",
		`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="+Inf"} 3` + "\n",
		`ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 0.007` + "\n",
		"# TYPE ratelimit_localcache_entryCount gauge\nratelimit_localcache_entryCount 4\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(got, "rate_limit_over_limit{") || strings.Contains(got, "shadow_mode") || strings.Contains(got, `"Check"`) {
		t.Errorf("unexpected metrics:\n%s", got)
	}
	if t.Failed() {
		t.Log(got)
	}
	old := page(s, DefaultMapper(true), map[string]string{"env": "prod"})
	for _, want := range []string{
		`ratelimit_service_response_time_seconds_bucket{env="prod",grpc_method="ShouldRateLimit",le="5"} 2` + "\n",
		`ratelimit_service_response_time_seconds_sum{env="prod",grpc_method="ShouldRateLimit"} 7` + "\n",
		`ratelimit_service_config_load_success`,
	} {
		if strings.Contains(old, want) == strings.Contains(want, "success") {
			t.Errorf("%s in\n%s", want, old)
		}
	}
}

func TestParseMapper(t *testing.T) {
	m, warnings, err := ParseMapper([]byte(`
defaults: {ttl: 1m}
mappings:
  - {match: "a.*.b", name: "glob_$1", labels: {x: "$1"}}
  - {match: "a\\.(.*)", match_type: regex, name: "regex", match_metric_type: gauge, ttl: 5m}
  - {match: "t.*", name: t, scale: 0.001, timer_type: histogram, help: words}
  - {match: ".", match_type: regex, action: drop, name: dropped}
`))
	if err != nil || !slices.Equal(warnings, []string{"defaults is ignored", "ttl is ignored"}) {
		t.Fatal(warnings, err)
	}
	for _, tt := range []struct {
		name, kind string
		want       string // empty: dropped
	}{
		{"a.c.b", "counter", `glob_c{x="c"} 1`},
		{"a.c.d.b", "gauge", "regex 1"},
		{"a.c.d.b", "counter", ""},
		{"t.x", "observer", "t 0.001"},
		{"other", "counter", ""},
	} {
		got, ok := m.Map(tt.name, tt.kind, nil)
		if text := fmt.Sprint(got.Name, got.Labels, " ", got.Scale); ok != (tt.want != "") || ok && text != tt.want {
			t.Errorf("%s %s becomes %s, want %s", tt.kind, tt.name, text, tt.want)
		}
	}
	for text, want := range map[string]string{
		"a: [":                   "line 1",
		"a: b":                   "mappings is missing",
		"mappings: [{match: a}]": "line 1: match or name is missing",
		"mappings: [{name: a}]":  "line 1: match or name is missing",
		"mappings:\n  - {match: '(', match_type: regex, name: a}": "line 2: match is not a valid regular expression",
		"mappings:\n  - {match: a, name: a, scale: x}":            "line 2: scale: write a number",
	} {
		if _, _, err := ParseMapper([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
