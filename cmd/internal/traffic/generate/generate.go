// Package generate writes synthetic access logs, for operators without a log and for tests of rules. A log is a function of
// its [Config]: the same seed gives the same lines. Requests are generated one after the other, in bounded memory.
//
// Ordinary clients have addresses of 198.18.0.0/16, bots and floods of 198.19.0.0/16, so that the outcome of a rule can be
// judged. Both networks are reserved for benchmarks (RFC 2544).
package generate

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

// Config describes the traffic.
type Config struct {
	Kind     string
	Seed     uint64
	Rate     float64       // mean requests per second of the ordinary clients, without retries
	Clients  int           // ordinary clients; the first ones send most
	Duration time.Duration // of the log
	Start    time.Time
}

// Limits of a Config.
const (
	MaxRate     = 1e6
	MaxClients  = 1 << 16
	MaxDuration = 366 * 24 * time.Hour
)

// kinds are the kinds of traffic.
var kinds = []struct {
	name, help string
	streams    func(g *generator) []stream
}{
	{"poisson", "independent requests at a constant rate", func(g *generator) []stream { return []stream{g.arrivals(constant, 1)} }},
	{"bursts", "clients that send 1 to 40 requests in a row, then pause", func(g *generator) []stream { return []stream{g.bursts()} }},
	{"daily", "a rhythm of 24 hours: quiet at 3:00, busy at 15:00", func(g *generator) []stream { return []stream{g.arrivals(daily, 2)} }},
	{"sale", "a flash sale: 20 times the rate after 30 % of the time, then less and less", func(g *generator) []stream { return []stream{g.arrivals(g.sale, 20)} }},
	{"bot", "poisson, and one bot that reads page after page, 5 per second", func(g *generator) []stream { return []stream{g.arrivals(constant, 1), g.bot()} }},
	{"retries", "poisson, and an outage from 40 % to 60 % of the time in which each client retries at once, up to 10 times", func(g *generator) []stream { return []stream{g.retries()} }},
	{"flood", "poisson, and a flood of 20 addresses with 20 times the rate, from 40 % to 50 % of the time", func(g *generator) []stream { return []stream{g.arrivals(constant, 1), g.flood()} }},
}

// Kinds returns the names of the kinds of traffic.
func Kinds() (all []string) {
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}

// Help describes the kinds of traffic, one per line.
func Help() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %-8s  %s\n", k.name, k.help)
	}
	return b.String()
}

func (c *Config) check() error {
	switch {
	case !(c.Rate > 0 && c.Rate <= MaxRate):
		return fmt.Errorf("rate %v: write a number of requests per second above 0, at most %d", c.Rate, int(MaxRate))
	case c.Clients < 1 || c.Clients > MaxClients:
		return fmt.Errorf("%d clients: write 1 to %d", c.Clients, MaxClients)
	case c.Duration <= 0 || c.Duration > MaxDuration:
		return fmt.Errorf("duration %v: write more than 0, at most %v", c.Duration, MaxDuration)
	}
	return nil
}

// event is a request. Micros is its time since the start.
type event struct {
	micros int64
	client netip.Addr
	user   int // 0 is none
	path   string
	item   int // appended to the path, if above 0
	status int
	agent  string
}

// stream is a source of requests, in order of time.
type stream interface {
	// next returns the next request; its time is at or after the end of the log if there is no other.
	next() event
}

// generator is what the streams of a log share.
type generator struct {
	Config
	end int64
	rng *rand.Rand
}

// Write writes a log and returns the number of lines. It returns the error of ctx when ctx is done.
func Write(ctx context.Context, w io.Writer, c Config) (lines int64, err error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	g := &generator{Config: c, end: c.Duration.Microseconds(), rng: newRand(c.Seed)}
	for _, k := range kinds {
		if k.name == c.Kind {
			return g.write(ctx, w, k.streams(g))
		}
	}
	return 0, fmt.Errorf("%q is not a kind of traffic: write one of %s", c.Kind, strings.Join(Kinds(), ", "))
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// write merges the streams.
func (g *generator) write(ctx context.Context, w io.Writer, from []stream) (lines int64, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	var heads []event
	for _, s := range from {
		heads = append(heads, s.next())
	}
	var line []byte
	for ; ; lines++ {
		first := 0
		for i := range heads {
			if heads[i].micros < heads[first].micros {
				first = i
			}
		}
		e := &heads[first]
		if e.micros >= g.end {
			return lines, out.Flush()
		}
		if lines%(1<<10) == 0 {
			if err := ctx.Err(); err != nil {
				return lines, err
			}
		}
		line = g.line(line[:0], e)
		if _, err := out.Write(line); err != nil {
			return lines, err
		}
		heads[first] = from[first].next()
	}
}

// line appends the line of a request.
func (g *generator) line(b []byte, e *event) []byte {
	r := accesslog.Record{
		Time: g.Start.Add(time.Duration(e.micros) * time.Microsecond), Duration: time.Duration(g.rng.ExpFloat64()*2e4) * time.Microsecond,
		Method: "GET", Host: "api.example.com", Path: e.path, Proto: "HTTP/2.0", Status: e.status, BytesOut: int64(200 + g.rng.IntN(4000)), Client: e.client,
		UserAgent: cmp.Or(e.agent, "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
	}
	if e.item > 0 {
		r.Path = fmt.Sprint(e.path, e.item)
	}
	if e.path == "/login" {
		r.Method = "POST"
	}
	if e.user > 0 {
		r.User = fmt.Sprint("user", e.user)
	}
	return accesslog.AppendJSON(b, &r, false)
}
