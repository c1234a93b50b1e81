package recommend

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
)

// Rate is a count per window. Rule files write it as 28/5s.
type Rate struct {
	Count  int64
	Window time.Duration
}

// ParseRate parses a rate such as 10/s, 90/min or 5.6/s.
func ParseRate(s string) (Rate, error) {
	fail := func() (Rate, error) {
		return Rate{}, fmt.Errorf("rate %.40q: write COUNT/UNIT, such as 10/s, 90/min or 5.6/s", s)
	}
	count, unit, found := strings.Cut(s, "/")
	whole, decimals, _ := strings.Cut(count, ".")
	l, err := sluice.ParseLimit(whole + "/" + unit)
	if !found || err != nil || l.Algorithm == sluice.Concurrency {
		return fail()
	}
	r := Rate{Count: l.Count, Window: l.Window}
	if decimals != "" {
		exact, ok := new(big.Rat).SetString(count)
		digits := !strings.ContainsFunc(decimals, func(r rune) bool { return r < '0' || r > '9' })
		if !ok || !digits || len(decimals) > 6 || !exact.Num().IsInt64() {
			return fail()
		}
		r = Rate{Count: exact.Num().Int64(), Window: l.Window * time.Duration(exact.Denom().Int64())}
	}
	if _, err := r.limit(1).Build(); err != nil {
		return Rate{}, fmt.Errorf("rate %.40q: %w", s, err)
	}
	return r, nil
}

// String formats the rate as in rule files.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if n := r.Window / u.length; r.Window%u.length == 0 && n > 0 {
			if n == 1 {
				return fmt.Sprintf("%d/%s", r.Count, u.name)
			}
			return fmt.Sprintf("%d/%d%s", r.Count, n, u.name)
		}
	}
	return strconv.FormatInt(r.Count, 10) + "/" + r.Window.String()
}

var rateUnits = []struct {
	name   string
	length time.Duration
}{{"day", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

func (r Rate) micros() int64 { return r.Window.Microseconds() }

// PerSecond returns the rate per second.
func (r Rate) PerSecond() float64 { return float64(r.Count) / r.Window.Seconds() }

// limit returns the rate as a token bucket.
func (r Rate) limit(burst int64) sluice.Limit { return sluice.Per(r.Count, r.Window).WithBurst(burst) }

// compareRates orders rates by their value.
func compareRates(a, b Rate) int { return cmp.Compare(a.PerSecond(), b.PerSecond()) }

// grid returns the rates of a frontier between two rates per second: numbers that people write, about 12 per decade.
func grid(from, to float64) []Rate {
	var all []Rate
	add := func(count int64, window time.Duration) {
		if r := (Rate{count, window}); r.PerSecond() >= from*(1-1e-9) && r.PerSecond() <= to*(1+1e-9) {
			all = append(all, r)
		}
	}
	for _, n := range []int64{1, 2, 3, 4, 6, 8, 12, 18} {
		add(n, 24*time.Hour)
	}
	for _, n := range []int64{1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50} {
		add(n, time.Hour)
		add(n, time.Minute)
	}
	for _, n := range []int64{60, 72, 90, 120, 150, 180, 240, 300, 360, 420, 480, 540} { // 1/s to 9/s
		if n%60 == 0 {
			add(n/60, time.Second)
		} else {
			add(n, time.Minute)
		}
	}
	for ten := int64(10); ten <= 1_000_000; ten *= 10 {
		for _, n := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90} {
			add(n*ten/10, time.Second)
		}
	}
	slices.SortFunc(all, compareRates)
	return all
}
