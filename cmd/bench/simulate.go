package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/simulate"
	"github.com/sluiceproject/sluice/rules"
)

// The scenario `simulate` replays a combined log through ten rules, as sluice simulate does: first lines from a file, to
// measure the time, then a log larger than memory should be, to measure the memory.

const simulated = "simulate"

var simulateContender = contender{
	name: simulated, role: roleOurs, clock: "that of the log", scenarios: []string{simulated}, about: "sluice simulate, a combined log and ten rules",
}

// simulateScenario returns the scenario, whose ops are lines.
func simulateScenario(quick bool, reps int) scenario {
	s := scenario{simulated, "replay of a log", 30_000, 1_000_000, reps, false}
	if quick {
		s.ops = 100_000
	}
	return s
}

// largeLog is the size of the log for memory, of which the scenario uses the part that its lines are of a million.
const largeLog = 2 << 30

// simulateRun is the result of one repetition.
type simulateRun struct {
	Lines     int
	Seconds   float64
	Large     int64   // bytes of the large log
	Resident  float64 // maximum resident memory of both parts, in MiB
	Disturbed bool    `json:",omitempty"`
}

// simulateRules returns ten rules, of which eight match each request of the log.
func simulateRules() (*rules.Set, error) {
	rule := func(name string, l sluice.Limit, per ...string) rules.Rule {
		r := rules.Rule{Name: name, Limits: []rules.Limit{{Limit: l}}}
		for _, p := range per {
			r.Per = append(r.Per, rules.Ref{Name: p})
		}
		return r
	}
	on := func(r rules.Rule, ref, value string) rules.Rule {
		p := rules.Predicate{Ref: rules.Ref{Name: ref}, Values: []string{value}}
		if ref == "path" {
			p.Values, p.Patterns = nil, []string{value}
		}
		r.Match.Predicates = []rules.Predicate{p}
		return r
	}
	return rules.New(rules.Config{Rules: []rules.Rule{
		rule("ip", sluice.PerMinute(60), "ip"),
		rule("ip-window", sluice.PerMinute(300).WithAlgorithm(sluice.SlidingWindowCounter), "ip"),
		rule("ip-hour", sluice.PerHour(5000).WithAlgorithm(sluice.FixedWindow), "ip"),
		rule("all", sluice.PerSecond(190)), // of 200
		rule("agent", sluice.PerSecond(1000), "header:User-Agent"),
		rule("path", sluice.PerSecond(100), "path"),
		on(rule("items", sluice.PerSecond(5), "ip"), "path", "/items/**"),
		on(rule("gets", sluice.PerSecond(5), "ip", "path"), "method", "GET"),
		on(rule("login", sluice.PerMinute(5), "ip"), "path", "/login"),
		on(rule("search", sluice.PerMinute(5), "ip"), "path", "/search/**"),
	}})
}

// simulateMatches is the number of rules that match every request.
const simulateMatches = 8

// logText is a reader of lines of a combined log, 200 per second.
type logText struct {
	rng   *rand.Rand
	lines int // left
	line  []byte
	at    int
	n     int64
	keys  int
}

var logStart = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

func (l *logText) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if l.at == len(l.line) {
			if l.lines == 0 {
				if n == 0 {
					err = io.EOF
				}
				return n, err
			}
			l.next()
		}
		c := copy(b[n:], l.line[l.at:])
		l.at, n = l.at+c, n+c
	}
	return n, nil
}

func (l *logText) next() {
	client, at := l.rng.IntN(l.keys), logStart.Add(time.Duration(l.n/200)*time.Second)
	b := append(l.line[:0], "198."...)
	for i, part := range []int{18 + client>>16&1, client >> 8 & 255, client & 255} {
		b = strconv.AppendInt(b, int64(part), 10)
		if i < 2 {
			b = append(b, '.')
		}
	}
	b = at.AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700")
	b = strconv.AppendInt(append(b, `] "GET /items/`...), int64(l.rng.IntN(5000)), 10)
	b = strconv.AppendInt(append(b, `?page=`...), l.n%100, 10)
	b = strconv.AppendInt(append(b, ` HTTP/1.1" 200 `...), int64(l.rng.IntN(10_000)), 10)
	l.line = append(b, ` "https://example.com/" "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/139.0 Safari/537.36"`+"\n"...)
	l.at = 0
	l.n++
	l.lines--
}

// measureSimulate runs the scenario.
func measureSimulate(s *scenario, j job) (*result, error) {
	file, err := os.CreateTemp("", "bench-simulate-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	text := func(seed uint64, lines int) *logText {
		return &logText{rng: rand.New(rand.NewPCG(j.Seed, seed)), keys: s.keys, lines: lines}
	}
	size, err := io.Copy(file, text(0, s.ops))
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	w, begin := watch(), time.Now()
	if err := replay(file, s.ops); err != nil {
		return nil, err
	}
	run := &simulateRun{Lines: s.ops, Seconds: time.Since(begin).Seconds(), Disturbed: w.disturbed(2)}
	large := int(int64(largeLog) / (size / int64(s.ops)) * int64(s.ops) / 1_000_000)
	run.Large = int64(large) * (size / int64(s.ops))
	if err := replay(text(1, large), large); err != nil {
		return nil, err
	}
	run.Resident, err = maxResident()
	return &result{Simulate: run}, err
}

// replay replays a log and checks that each line was counted by each rule, and that the limits had an effect.
func replay(log io.Reader, lines int) error {
	set, err := simulateRules()
	if err != nil {
		return err
	}
	r, err := simulate.Replay(context.Background(), simulate.Config{Set: set, Logs: []logs.Source{{Name: "log", Reader: log}}})
	if err != nil {
		return err
	}
	counted := int64(0)
	for i := range r.Rules {
		counted += r.Rules[i].Requests
	}
	if r.Requests != int64(lines) || counted != simulateMatches*int64(lines) || len(r.Rules) != 10 || r.Denied == 0 || r.Allowed == 0 {
		return failf("%d of %d lines, %d of %d takes, %d allowed, %d denied", r.Requests, lines, counted, simulateMatches*lines, r.Allowed, r.Denied)
	}
	return nil
}

// maxResident returns the maximum resident memory of this process, in MiB.
func maxResident() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory is available on Linux only: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in %q", status)
}

// simulateRow returns the medians of the repetitions.
func (r *runner) simulateRow(s *scenario, invalid map[string]bool) *simulateRun {
	var seconds, resident []float64
	row := &simulateRun{}
	for _, res := range r.results[at(s.name, simulated)] {
		if res.Invalid != "" {
			invalid[simulated+": "+res.Invalid] = true
			continue
		}
		row.Lines, row.Large = res.Simulate.Lines, res.Simulate.Large
		row.Disturbed = row.Disturbed || res.Simulate.Disturbed
		seconds, resident = append(seconds, res.Simulate.Seconds), append(resident, res.Simulate.Resident)
	}
	if len(seconds) == 0 {
		return nil
	}
	row.Seconds, row.Resident = median(seconds), median(resident)
	return row
}

func writeSimulate(w io.Writer, r *simulateRun) {
	fmt.Fprintf(w, "\nReplay of a combined log through ten rules (-only %s)\n\n", simulated)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "lines\tseconds\tlines/s\tlarge log\tmaximum memory\t\n")
	note := ""
	if r.Disturbed {
		note = "  (disturbed by other processes)"
	}
	fmt.Fprintf(tw, "%d\t%.2f\t%.0f\t%.1f GiB\t%.0f MiB\t%s\n", r.Lines, r.Seconds, float64(r.Lines)/r.Seconds, float64(r.Large)/(1<<30), r.Resident, note)
	tw.Flush()
}

// simulateBars returns the targets of the scenario; those of a million lines only hold for as many.
func simulateBars(r *simulateRun) []bar {
	if r == nil {
		r = &simulateRun{}
	}
	seconds, resident := r.Seconds, r.Resident
	if r.Lines != 1_000_000 {
		seconds, resident = 0, 0
	}
	speed := atMost("replay of 1M lines through ten rules", simulated, seconds, 5, " s")
	if r.Disturbed && speed.Got != "" && speed.Verdict == "miss" {
		speed.Verdict = "disturbed"
	}
	return []bar{speed, atMost("memory of a replay of 2 GiB", simulated, resident, 256, " MiB")}
}
