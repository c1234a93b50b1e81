package step_test

import (
	"encoding/csv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The traffic on which the sliding counter is compared with the exact log. All of it is the same in every run: it is
// read from testdata/traffic or generated with a fixed seed. Limits are chosen so that the exact log denies 0.1 to 10 %.

// arrival is one request.
type arrival struct{ at, client, cost int64 }

// traffic is a sequence of requests in order of time, and the limit per client.
type traffic struct {
	name          string
	limit, window int64
	arrivals      []arrival
}

// accuracyTraffic returns the rows of the table in docs/algorithms.md.
func accuracyTraffic(t *testing.T) []traffic {
	shop := recorded(t, "shop", time.Date(2019, 1, 22, 0, 26, 14, 0, time.UTC))
	return []traffic{
		{"pages: 400 visitors, 4 requests a page on average", 60, minute, visitors()},
		{"polls: 60 scripts at 30 to 110 % of their limit", 60, minute, scripts()},
		{"jobs: 60 clients that begin at the whole minute", 60, minute, jobs()},
		{"shop log, by address", 25, 10 * second, shop},
		{"shop log, by address", 40, minute, shop},
		{"flood log, by address", 250, second, recorded(t, "flood", time.Date(2023, 7, 18, 13, 44, 16, 0, time.UTC))},
		{"language model, tokens of all clients", 480_000, minute, recorded(t, "llm", time.Date(2023, 11, 16, 18, 15, 46, 680_000_000, time.UTC))},
	}
}

// A generator adds the requests of its clients. Each client has its own random source, so that none depends on the
// number of values that others have drawn.
type generator struct {
	rnd      *rand.Rand
	client   int64
	arrivals []arrival
}

func (g *generator) clients(seed uint64, n int64, one func(g *generator, i int64)) []arrival {
	for i := range n {
		g.rnd, g.client = rand.New(rand.NewPCG(seed, uint64(i))), i
		one(g, i)
	}
	slices.SortStableFunc(g.arrivals, func(a, b arrival) int { return int(a.at - b.at) })
	return g.arrivals
}

func (g *generator) request(at int64) {
	if at < generated {
		g.arrivals = append(g.arrivals, arrival{epoch + at, g.client, 1})
	}
}

// exp draws the time until the next event of a Poisson process.
func (g *generator) exp(mean int64) int64 { return int64(g.rnd.ExpFloat64() * float64(mean)) }

// generated is the duration of generated traffic.
const generated = 10 * minute

// visitors load pages, each as a Poisson process; a page is a geometric number of requests within about a second. The
// rates decrease as 1/(10 + rank), and the busiest client is at 90 % of the limit on average.
func visitors() []arrival {
	return new(generator).clients(1, 400, func(g *generator, i int64) {
		mean := 4 * minute / 54 * (10 + i) / 10
		for page := g.exp(mean); page < generated; page += g.exp(mean) {
			at := page
			g.request(at)
			for g.rnd.IntN(4) > 0 {
				at += g.exp(second / 4)
				g.request(at)
			}
		}
	})
}

// scripts send requests at a fixed interval per client, which varies by 20 %.
func scripts() []arrival {
	return new(generator).clients(2, 60, func(g *generator, i int64) {
		period := 100 * second / (30 + 80*i/59)
		for at := g.rnd.Int64N(period); at < generated; at += period*4/5 + g.rnd.Int64N(period*2/5) {
			g.request(at)
		}
	})
}

// jobs start within five seconds of a whole minute, not in every minute, and send 10 requests per second until they are
// done.
func jobs() []arrival {
	return new(generator).clients(3, 60, func(g *generator, i int64) {
		for start := int64(0); start < generated; start += minute {
			if g.rnd.IntN(3) == 0 {
				continue
			}
			at := start + g.rnd.Int64N(5*second)
			for n := 10 + g.rnd.IntN(56); n > 0; n-- {
				g.request(at)
				at += g.exp(second / 10)
			}
		}
	})
}

// recorded reads a file of testdata/traffic: the time of each request, and its client or its cost. The requests of a
// second are spread evenly over it, in their order.
func recorded(t *testing.T, name string, start time.Time) []arrival {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "traffic", name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%s: %d lines, %v", f.Name(), len(rows), err)
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		return n
	}
	var all []arrival
	for _, row := range rows[1:] {
		at, other := number(row[0]), number(row[1])
		if rows[0][0] == "millisecond" {
			all = append(all, arrival{start.UnixMicro() + at*milli, 0, other})
		} else {
			all = append(all, arrival{start.UnixMicro() + at*second, other, 1})
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return int(a.at - b.at) })
	if rows[0][0] == "second" {
		for i := 0; i < len(all); {
			n := i
			for n < len(all) && all[n].at == all[i].at {
				n++
			}
			for k := i; k < n; k++ {
				all[k].at += (2*int64(k-i) + 1) * second / (2 * int64(n-i))
			}
			i = n
		}
	}
	return all
}
