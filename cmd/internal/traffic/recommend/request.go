package recommend

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
)

// Request is what a user asks for, as flags.
type Request struct {
	Key       string // expression of [logs.ParseKey], or all for one key of all requests
	Cost      string // expression of [logs.Entry.Cost]; empty for a cost of 1
	For       string
	Untouched string
	Rates     []string
	Block     time.Duration
	Capacity  string
	Name      string
	Write     string // directory of rule files
	ShowKeys  bool
	Proxies   []netip.Prefix                    // trusted when the logs are read
	Progress  func(requests, read, total int64) // called periodically; may be nil
}

// allRequests is the key expression of a limit that all requests share.
const allRequests = "all"

// config validates the request.
func (q *Request) config() (Config, error) {
	c := Config{For: Purpose(q.For), Block: q.Block, Name: q.Name, Key: q.Key, HasCost: q.Cost != ""}
	switch c.For {
	case Deny, Queue, Concurrency:
	default:
		return c, fmt.Errorf("--for %.40q: write deny, queue or concurrency", q.For)
	}
	if c.For == Concurrency && (q.Cost != "" || len(q.Rates) > 0) {
		return c, fmt.Errorf("--for concurrency counts requests in flight: leave out --cost and --rate")
	}
	share, err := strconv.ParseFloat(strings.TrimSuffix(q.Untouched, "%"), 64)
	if err != nil || !strings.HasSuffix(q.Untouched, "%") || !(share > 0 && share <= 100) {
		return c, fmt.Errorf("--untouched %.40q: write a share of the clients above 0%% and up to 100%%, such as 99.9%%", q.Untouched)
	}
	c.Untouched = int(math.Round(share * 1e4))
	for _, text := range q.Rates {
		rate, err := ParseRate(text)
		if err != nil {
			return c, fmt.Errorf("--rate: %w", err)
		}
		c.Rates = append(c.Rates, rate)
	}
	if q.Capacity != "" {
		if c.Capacity, err = ParseRate(q.Capacity); err != nil {
			return c, fmt.Errorf("--capacity: %w", err)
		}
	}
	if q.Block < 0 {
		return c, fmt.Errorf("--block %v: write the length of a time block, such as 20s", q.Block)
	}
	if _, err := sluice.NewRule(sluice.Rule{Name: q.Name, Limit: sluice.PerSecond(1)}); err != nil || strings.ContainsAny(q.Name, `/:*?[]{}&!|>'%@,.\`) {
		return c, fmt.Errorf("--name %.40q: write letters, digits and hyphens, such as requests-per-ip", q.Name)
	}
	for _, p := range q.Proxies {
		c.Proxies = append(c.Proxies, p.String())
	}
	c.Per, err = references(q.Key)
	return c, err
}

// references returns the key of rule files that corresponds to a key expression.
func references(expr string) ([]string, error) {
	if expr == allRequests {
		return nil, nil
	}
	var all []string
	for _, part := range strings.Split(expr, "+") {
		kind, name, _ := strings.Cut(part, ":")
		base, _, _ := strings.Cut(kind, "/")
		switch {
		case base == "ip" || base == "forwarded":
			all = append(all, "ip")
		case kind == "user":
			all = append(all, "attr:user")
		case kind == "field":
			all = append(all, "attr:"+name)
		case kind == "header":
			all = append(all, part)
		default: // host, path, method
			all = append(all, kind)
		}
	}
	return all, nil
}

// Logs reads logs and recommends a limit.
func Logs(ctx context.Context, m *logs.Merged, q Request) (*Report, error) {
	c, err := q.config()
	if err != nil {
		return nil, err
	}
	var key logs.KeyFunc
	c.Mask = func(string) string { return "" }
	if q.Key != allRequests {
		if key, err = logs.ParseKey(q.Key); err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		c.Mask = func(k string) string { return keyText(q.Key, k, q.ShowKeys) }
	}
	traffic, skipped, err := q.read(ctx, m, key)
	if err != nil {
		return nil, err
	}
	for _, l := range m.Logs {
		c.Resolution = max(c.Resolution, l.Resolution())
	}
	r, err := traffic.Recommend(ctx, c)
	if err != nil {
		return nil, err
	}
	r.addLogs(m, q.ShowKeys)
	if skipped > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d requests without the key or the cost were left out.", skipped))
	}
	if q.Write != "" {
		err = r.Write(ctx, q.Write)
	}
	return r, err
}

// addLogs describes the logs.
func (r *Report) addLogs(m *logs.Merged, showKeys bool) {
	for _, l := range m.Logs {
		invalid, faults := l.Errors()
		one := Log{Name: l.Name, Format: l.Format(), Mapping: l.Mapping(), Lines: l.Lines(), Invalid: invalid, Errors: []string{}}
		for _, f := range faults {
			text := fmt.Sprintf("line %d: %v", f.Line, f.Err)
			if showKeys {
				text += ": " + f.Text // begins with the client's address in many formats
			}
			one.Errors = append(one.Errors, text)
		}
		r.Logs = append(r.Logs, one)
	}
}

// keyText returns a key for reports.
func keyText(expr, key string, show bool) string {
	var all []string
	for _, p := range logs.KeyParts(expr, key) {
		if show {
			all = append(all, p.Name+"="+p.Value)
		} else {
			all = append(all, p.Masked())
		}
	}
	return strings.Join(all, ", ")
}

// progressRequests is the number of requests between two calls of Progress and checks of the context.
const progressRequests = 1 << 14

// read reads the traffic. It returns the number of requests without a key or cost.
func (q *Request) read(ctx context.Context, m *logs.Merged, key logs.KeyFunc) (*Traffic, int64, error) {
	t, skipped := &Traffic{}, int64(0)
	for n := int64(0); ; n++ {
		if n%progressRequests == 0 {
			if err := ctx.Err(); err != nil {
				return nil, 0, err
			}
			if q.Progress != nil {
				read, total := m.Progress()
				q.Progress(n, read, total)
			}
		}
		e, err := m.Next()
		if err != nil {
			return nil, 0, err
		}
		if e == nil {
			return t, skipped, nil
		}
		a := Arrival{Micros: e.Micros, Cost: 1, Duration: e.Record.Duration.Microseconds()}
		ok := true
		if key != nil {
			a.Key, ok = key(e)
			a.Crawler = isCrawler(e.Record.UserAgent)
		}
		if ok && q.Cost != "" {
			a.Cost, ok = e.Cost(q.Cost)
		}
		if ok = ok && a.Cost <= sluice.MaxCost; !ok {
			skipped++
			continue
		}
		t.Add(a)
	}
}

// crawlerWords are parts of the user agents of crawlers, in lower case.
var crawlerWords = []string{"bot/", "bot;", "bot-", "bot ", "bot)", "crawl", "spider", "slurp", "+http://", "+https://", "facebookexternalhit"}

// isCrawler reports whether a user agent names a crawler. Anyone can send such a user agent.
func isCrawler(agent string) bool {
	agent = strings.ToLower(agent)
	for _, word := range crawlerWords {
		if strings.Contains(agent, word) {
			return true
		}
	}
	return strings.HasSuffix(agent, "bot")
}
