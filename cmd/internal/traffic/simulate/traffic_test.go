package simulate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

var start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// written returns a log of the records in the given order.
func written(t testing.TB, format accesslog.Format, all []accesslog.Record) []byte {
	var b bytes.Buffer
	l, err := accesslog.Open(accesslog.Config{Lines: logwriter.Config{Output: &b, Buffer: 1 << 30}, Format: format, Query: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		l.Write(&all[i])
	}
	if err := l.Close(); err != nil || l.Dropped() > 0 {
		t.Fatal(err, l.Dropped())
	}
	return b.Bytes()
}

func set(t testing.TB, all ...rules.Rule) *rules.Set {
	t.Helper()
	s, err := rules.New(rules.Config{Rules: all})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func refs(names ...string) (all []rules.Ref) {
	for _, n := range names {
		all = append(all, rules.Ref{Name: n})
	}
	return all
}

func limit(l sluice.Limit) []rules.Limit { return []rules.Limit{{Limit: l}} }

func on(ref string, values ...string) rules.Match {
	p := rules.Predicate{Ref: rules.Ref{Name: ref}, Values: values}
	if ref == "path" {
		p.Values, p.Patterns = nil, values
	}
	return rules.Match{Predicates: []rules.Predicate{p}}
}

func replayed(t testing.TB, c Config, texts ...[]byte) *Report {
	t.Helper()
	for i, l := range texts {
		c.Logs = append(c.Logs, logs.Source{Name: fmt.Sprint("log", i), Reader: bytes.NewReader(l)})
	}
	r, err := Replay(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func at(offset time.Duration, path, ip string) accesslog.Record {
	return accesslog.Record{Time: start.Add(offset), Method: "GET", Path: path, Status: 200, Client: netip.MustParseAddr(ip)}
}

// A replay makes the same decisions as the middleware of a server with the same requests at the same times.
func TestAsMiddleware(t *testing.T) {
	s := set(
		t,
		rules.Rule{Name: "all", Limits: limit(sluice.PerSecond(20))},
		rules.Rule{Name: "user", Match: on("path", "/posts/**"), Per: refs("attr:user"), Limits: limit(sluice.Per(5, 3*time.Second))},
		rules.Rule{Name: "failed", Match: on("path", "/login"), Per: refs("ip"), Limits: limit(sluice.Per(2, time.Minute)), ChargeStatus: rules.StatusRanges{{From: 401, To: 401}}},
		rules.Rule{Name: "search", Match: on("path", "/search"), Per: refs("query:q"), Limits: limit(sluice.Per(3, 10*time.Second).WithAlgorithm(sluice.FixedWindow))},
	)
	rng := rand.New(rand.NewPCG(1, 2))
	var all []accesslog.Record
	offset := time.Duration(0)
	for range 2000 {
		offset += time.Duration(rng.IntN(100_000)) * time.Microsecond
		r := at(offset, []string{"/posts/1", "/login", "/search", "/a//b/../c", "/x%2fy"}[rng.IntN(5)], fmt.Sprint("192.0.2.", rng.IntN(3)))
		r.User = []string{"", "ada", "bob"}[rng.IntN(3)]
		r.Status = []int{200, 401}[rng.IntN(2)]
		r.Query = []string{"", "q=1", "q=2&x", "q=1&q=2"}[rng.IntN(4)]
		all = append(all, r)
	}

	now := start
	store, err := memstore.Open(memstore.Config{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	var current *accesslog.Record
	handler := httplimit.RulesMiddleware(limiter, func() *rules.Set { return s })(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(current.Status)
		_, _ = io.WriteString(w, "served")
	}))
	var served, denied, rejected int64
	for i := range all {
		current = &all[i]
		now = current.Time
		target := current.Path
		if current.Query != "" {
			target += "?" + current.Query
		}
		q, err := http.NewRequest(current.Method, "http://h"+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.RemoteAddr = netip.AddrPortFrom(current.Client, 1).String()
		if current.User != "" {
			q = q.WithContext(httplimit.ContextWithAttributes(q.Context(), map[string]string{"user": current.User}))
		}
		w := &answer{header: http.Header{}}
		handler.ServeHTTP(w, q)
		switch {
		case strings.HasPrefix(w.String(), "served"):
			served++
		case w.status == http.StatusTooManyRequests:
			denied++
		default:
			rejected++
		}
	}
	got := replayed(t, Config{Set: s}, written(t, accesslog.JSON, all))
	if got.Allowed != served || got.Denied != denied || got.Rejected != rejected || denied == 0 || rejected == 0 {
		t.Errorf("replay: allowed %d, denied %d, rejected %d; middleware: %d, %d, %d", got.Allowed, got.Denied, got.Rejected, served, denied, rejected)
	}

	// Neither the order of the lines nor their distribution over several logs matters.
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	half := len(all) / 2
	other := replayed(t, Config{Set: s}, written(t, accesslog.JSON, all[:half]), packed(t, written(t, accesslog.JSON, all[half:])))
	if other.Allowed != served || other.Denied != denied || other.Rejected != rejected {
		t.Errorf("shuffled: allowed %d, denied %d, rejected %d; want %d, %d, %d", other.Allowed, other.Denied, other.Rejected, served, denied, rejected)
	}
	for i := range got.Rules {
		a, b := got.Rules[i], other.Rules[i]
		if a.Denied != b.Denied || a.Peak != b.Peak || !slices.Equal(a.Timeline.Parts, b.Timeline.Parts) {
			t.Errorf("rule %s: %+v and %+v", a.Name, a, b)
		}
	}
}

type answer struct {
	header http.Header
	status int
	bytes.Buffer
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

func packed(t *testing.T, log []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(log)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Ten requests at once with 1 request/s: delayed and queued requests wait 1 s to 9 s, and later ones wait behind them.
func TestWaits(t *testing.T) {
	var all []accesslog.Record
	for range 10 {
		all = append(all, at(0, "/", "192.0.2.1"))
	}
	all = append(all, at(4500*time.Millisecond, "/", "192.0.2.1"))
	log := written(t, accesslog.JSON, all)
	one := sluice.PerSecond(1)
	for _, c := range []struct {
		rule                    rules.Rule
		denied, delayed, queued int64
		mean, most              time.Duration
	}{
		{rules.Rule{OnLimit: rules.OnLimitDelay, Limits: limit(one.WithAlgorithm(sluice.LeakyQueue).WithBurst(100))}, 0, 10, 0, 5050 * time.Millisecond, 9 * time.Second},
		{rules.Rule{OnLimit: rules.OnLimitDelay, MaxDelay: 3 * time.Second, Limits: limit(one)}, 6, 3, 0, 2 * time.Second, 3 * time.Second},
		{rules.Rule{OnLimit: rules.OnLimitQueue, Limits: limit(one)}, 0, 0, 10, 5050 * time.Millisecond, 9 * time.Second},
		{rules.Rule{OnLimit: rules.OnLimitQueue, Limits: limit(one.WithAlgorithm(sluice.FixedWindow))}, 0, 0, 9, 0, 0},
	} {
		c.rule.Name, c.rule.Per = "r", refs("ip")
		report := replayed(t, Config{Set: set(t, c.rule)}, log)
		r := report.Rules[0]
		if r.Denied != c.denied || r.Delayed != c.delayed || r.Queued != c.queued || r.MeanWait != c.mean || r.MaxWait != c.most {
			t.Errorf("%v: got %+v, want %+v", c.rule.OnLimit, r, c)
		}
		if report.Denied != c.denied || report.Delayed != c.delayed || report.Queued != c.queued {
			t.Errorf("%v: all: %+v", c.rule.OnLimit, report)
		}
		if lost := strings.Contains(strings.Join(report.Notes, ""), "queued requests was not replayed"); lost != (c.queued == 9) {
			t.Errorf("%v: notes %q", c.rule.OnLimit, report.Notes)
		}
	}
}

// References of a rule that no line contains are listed.
func TestUnseen(t *testing.T) {
	r := at(0, "/", "192.0.2.1")
	r.User, r.UserAgent = "ada", "curl"
	rule := rules.Rule{
		Name: "r", Match: on("header:user-agent", "curl"), Per: refs("ip", "claim:sub", "who"), Limits: limit(sluice.PerSecond(1)),
		Except: []rules.Match{on("cookie:c", "1"), on("host", "h"), on("query:q", "1")}, Cost: rules.Cost{From: &rules.Ref{Name: "header:X-Cost"}},
		Tiers: &rules.Tiers{By: rules.Ref{Name: "attr:plan"}, Limits: map[string][]rules.Limit{"pro": limit(sluice.PerSecond(2))}},
	}
	s, err := rules.New(rules.Config{Rules: []rules.Rule{rule}, Attributes: []rules.Attribute{{Name: "who", Sources: refs("attr:user", "header:X-User")}}})
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string][]string{
		"":          {"cookie:c", "host", "query:q", "claim:sub", "header:X-User", "attr:plan", "header:X-Cost"},
		"claim:sub": {"cookie:c", "host", "query:q", "header:X-User", "attr:plan", "header:X-Cost"},
	} {
		if got := replayed(t, Config{Set: s, User: user}, written(t, accesslog.JSON, []accesslog.Record{r})).Rules[0].Unseen; !slices.Equal(got, want) {
			t.Errorf("user %q: got %v, want %v", user, got, want)
		}
	}
	r.Host, r.Query, r.Plan = "h2", "q=2", "pro"
	got := replayed(t, Config{Set: s, User: "claim:sub"}, written(t, accesslog.JSON, []accesslog.Record{r})).Rules[0]
	if want := []string{"cookie:c", "header:X-User", "header:X-Cost"}; !slices.Equal(got.Unseen, want) || got.Requests != 1 {
		t.Errorf("got %+v, want %v", got, want)
	}
	for _, bad := range []string{"ada", "path:x", "header:", "ip"} {
		if _, err := Replay(t.Context(), Config{Set: s, User: bad}); err == nil {
			t.Errorf("%q is accepted as user", bad)
		}
	}
}

// The keys with the most denials are returned by parts, and a timeline of any duration has at most Columns parts.
func TestKeysAndTimeline(t *testing.T) {
	var all []accesslog.Record
	for i := range 7 {
		for range 2 * (i + 1) {
			all = append(all, at(time.Duration(i)*100*time.Hour, "/", fmt.Sprint("192.0.2.", i)))
		}
	}
	r := replayed(t, Config{Set: set(t, rules.Rule{Name: "r", Per: refs("ip"), Limits: limit(sluice.PerMinute(1))})}, written(t, accesslog.Combined, all))
	rule := r.Rules[0]
	var got []string
	for _, k := range rule.Keys {
		got = append(got, fmt.Sprintf("%d%v", k.Count, k.Parts))
	}
	if want := "13[{ip 192.0.2.6}] 11[{ip 192.0.2.5}] 9[{ip 192.0.2.4}] 7[{ip 192.0.2.3}] 5[{ip 192.0.2.2}]"; strings.Join(got, " ") != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if rule.Peak != 14 || rule.Requests != 56 || rule.Denied != 49 {
		t.Errorf("%+v", rule)
	}
	var sum Part
	for _, p := range rule.Timeline.Parts {
		sum.Requests += p.Requests
		sum.Denied += p.Denied
	}
	if n := len(rule.Timeline.Parts); n > Columns || n < Columns/2 || sum != (Part{56, 49}) || rule.Timeline.Parts[n-1] != (Part{14, 13}) {
		t.Errorf("%d parts of %v, total %v: %v", n, rule.Timeline.Each, sum, rule.Timeline.Parts)
	}
	if len(r.Notes) != 2 {
		t.Errorf("notes %q", r.Notes)
	}
}

// The most frequent keys are found among any number of keys, within the returned error.
func TestManyKeys(t *testing.T) {
	var k keyCounter
	const often = 5000
	for i := range 10 * maxKeys {
		k.add(fmt.Sprint("once", i))
		if i%(10*maxKeys/often) == 0 {
			k.add("often")
		}
	}
	top := k.top(1)[0]
	if top.key != "often" || top.n > often || top.n+k.missed < often || len(k.counts) > maxKeys {
		t.Errorf("%+v, %d missed, %d keys", top, k.missed, len(k.counts))
	}
}

// Requests that are older than the window are counted when they are read, and reported.
func TestLate(t *testing.T) {
	s := set(t, rules.Rule{Name: "r", Limits: limit(sluice.PerSecond(1))})
	r, err := newReplay(Config{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []time.Duration{time.Second, 0, 500 * time.Millisecond} {
		e := &logs.Entry{Record: at(offset, "/", "192.0.2.1")}
		e.Micros = e.Record.Time.UnixMicro()
		if err := r.request(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	p := r.report(&logs.Merged{})
	if r.late != 2 || p.Denied != 2 || !strings.Contains(strings.Join(p.Notes, ""), "2 requests were out of order") {
		t.Errorf("%d late: %+v", r.late, p)
	}
}

func TestEnds(t *testing.T) {
	s := set(t, rules.Rule{Name: "r", Limits: limit(sluice.PerSecond(1))})
	for log, want := range map[string]error{"": ErrNoRequests, "\n": ErrNoRequests, "\x1f\x8bno gzip": gzip.ErrHeader} {
		_, err := Replay(t.Context(), Config{Set: s, Logs: []logs.Source{{Name: "l", Reader: strings.NewReader(log)}}})
		if !errors.Is(err, want) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", log, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := int64(0)
	_, err := Replay(ctx, Config{
		Set: s, Logs: []logs.Source{{Name: "l", Reader: bytes.NewReader(bytes.Repeat(written(t, accesslog.Combined, []accesslog.Record{at(0, "/", "192.0.2.1")}), 5*progressRequests))}},
		Progress: func(n, _, _ int64) { told = n; cancel() },
	})
	if !errors.Is(err, context.Canceled) || told != progressRequests {
		t.Errorf("after %d: %v", told, err)
	}
}

func BenchmarkReplay(b *testing.B) {
	for name, format := range map[string]accesslog.Format{"json": accesslog.JSON, "combined": accesslog.Combined} {
		b.Run(name, func(b *testing.B) {
			s := set(
				b, rules.Rule{Name: "ip", Per: refs("ip"), Limits: limit(sluice.PerSecond(10))},
				rules.Rule{Name: "posts", Match: on("path", "/posts/**"), Per: refs("attr:user"), Limits: limit(sluice.PerMinute(5))},
			)
			lines := 100_000
			if os.Getenv("SLUICE_SOAK") != "" {
				lines *= 10
			}
			var all []accesslog.Record
			for i := range lines {
				r := at(time.Duration(i)*time.Millisecond, "/posts/7", fmt.Sprintf("192.0.%d.%d", i%50, i%200))
				r.User, r.Host, r.UserAgent, r.Duration = fmt.Sprint("user", i%1000), "api.example.com", "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101", 1e6
				all = append(all, r)
			}
			log := written(b, format, all)
			for b.Loop() {
				if got := replayed(b, Config{Set: s}, log).Requests; got != int64(lines) {
					b.Fatal(got)
				}
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
