package generate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
)

func config(kind string) Config {
	return Config{Kind: kind, Seed: 1, Rate: 30, Clients: 100, Duration: 100 * time.Second, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func text(t *testing.T, c Config) string {
	t.Helper()
	var b bytes.Buffer
	n, err := Write(t.Context(), &b, c)
	if err != nil || int(n) != strings.Count(b.String(), "\n") {
		t.Fatalf("%d lines: %v", n, err)
	}
	return b.String()
}

// counts are requests by tenth of the log, of ordinary clients and of bots and floods.
type counts struct {
	ordinary, other [10]int
	failed          int
	clients         map[netip.Addr]int
}

func count(t *testing.T, c Config, log string) counts {
	t.Helper()
	m, err := logs.OpenAll([]logs.Source{{Name: "log", Reader: strings.NewReader(log)}}, logs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := counts{clients: map[netip.Addr]int{}}
	for {
		e, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		at := e.Record.Time.Sub(c.Start)
		if at < 0 || at >= c.Duration {
			t.Fatalf("a request at %v of %v", at, c.Duration)
		}
		all.clients[e.Record.Client]++
		if e.Record.Status == 503 {
			all.failed++
		}
		if netip.MustParsePrefix("198.18.0.0/16").Contains(e.Record.Client) {
			all.ordinary[10*at/c.Duration]++
		} else {
			all.other[10*at/c.Duration]++
		}
	}
	if bad, faults := m.Logs[0].Errors(); bad > 0 || m.Logs[0].Format() != "sluice" || m.Logs[0].Disorder != 0 {
		t.Fatalf("format %s, disorder %v, %d invalid lines: %v", m.Logs[0].Format(), m.Logs[0].Disorder, bad, faults)
	}
	return all
}

func total(parts [10]int) (n int) {
	for _, one := range parts {
		n += one
	}
	return n
}

// Each kind is in order, deterministic by its seed, and has the rates that its help states, within 10 %
// (25 % for bursts).
func TestKinds(t *testing.T) {
	about := func(t *testing.T, name string, got int, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 0.1*want {
			t.Errorf("%s: %d, want about %.0f", name, got, want)
		}
	}
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			c := config(kind)
			if kind == "daily" {
				c.Duration, c.Rate = 48*time.Hour, 0.02
			}
			log := text(t, c)
			if log != text(t, c) {
				t.Error("the same seed gives another log")
			}
			other := c
			other.Seed++
			if log == text(t, other) {
				t.Error("another seed gives the same log")
			}
			n := count(t, c, log)
			expected := c.Rate * c.Duration.Seconds()
			switch kind {
			case "sale": // 1 + 19 × the integral of exp(-t/0.1) over 70 % of the time
				about(t, "before the sale", n.ordinary[0]+n.ordinary[1]+n.ordinary[2], 0.3*expected)
				about(t, "all", total(n.ordinary), expected*(1+1.9*(1-math.Exp(-7))))
			case "retries": // each request of the outage is sent 11 times
				about(t, "outage", n.ordinary[4]+n.ordinary[5], 0.2*11*expected)
				about(t, "before", n.ordinary[0]+n.ordinary[3], 0.2*expected)
				if n.failed < n.ordinary[4] || n.failed > n.ordinary[4]+n.ordinary[5] {
					t.Errorf("%d failed of %v", n.failed, n.ordinary)
				}
			case "bursts": // about 150 bursts, whose number and lengths vary
				if got := float64(total(n.ordinary)); math.Abs(got-expected) > 0.25*expected {
					t.Errorf("%.0f requests, want about %.0f", got, expected)
				}
			default:
				about(t, "all", total(n.ordinary), expected)
			}
			switch kind {
			case "bot":
				about(t, "bot", total(n.other), 5*c.Duration.Seconds())
			case "flood":
				about(t, "flood", n.other[4], 20*0.1*expected)
				if total(n.other) != n.other[4] {
					t.Errorf("flood outside of its time: %v", n.other)
				}
			default:
				if total(n.other) > 0 {
					t.Errorf("%d requests of other networks", total(n.other))
				}
			}
			if len(n.clients) < 50 {
				t.Errorf("%d clients of 100", len(n.clients))
			}
		})
	}
}

// Bursts of a client are rows of requests with pauses.
func TestBursts(t *testing.T) {
	c := config("bursts")
	c.Clients, c.Rate, c.Duration = 1, 1, 10*time.Minute
	m, err := logs.OpenAll([]logs.Source{{Name: "log", Reader: strings.NewReader(text(t, c))}}, logs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	last, close, far := int64(0), 0, 0
	for {
		e, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		if gap := e.Micros - last; gap < 150_000 {
			close++
		} else if gap > 1_000_000 {
			far++
		}
		last = e.Micros
	}
	if far < 5 || close < 8*far {
		t.Errorf("%d short and %d long gaps", close, far)
	}
}

func TestWrongConfig(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"not a kind": func(c *Config) { c.Kind = "x" }, "rate 0": func(c *Config) { c.Rate = 0 }, "rate NaN": func(c *Config) { c.Rate = math.NaN() },
		"rate 2e+06": func(c *Config) { c.Rate = 2e6 }, "0 clients": func(c *Config) { c.Clients = 0 }, "65537 clients": func(c *Config) { c.Clients = 65537 },
		"duration 0s": func(c *Config) { c.Duration = 0 }, "duration 9600h0m0s": func(c *Config) { c.Duration = 400 * 24 * time.Hour },
	} {
		c := config("poisson")
		change(&c)
		if _, err := Write(t.Context(), io.Discard, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, io.Discard, config("poisson")); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}

// The number of sessions in memory is bounded, whatever the rate.
func TestSessionsAreBounded(t *testing.T) {
	c := config("retries")
	c.Rate, c.Duration = 1000, 5*time.Second
	g := &generator{Config: c, end: c.Duration.Microseconds(), rng: newRand(1)}
	s := g.retries().(*sessions)
	s.most = 100
	most := 0
	for e := s.next(); e.micros < g.end; e = s.next() {
		most = max(most, len(s.waiting))
	}
	if most != s.most {
		t.Errorf("%d sessions", most)
	}
}
