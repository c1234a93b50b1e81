package bench

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// Report is the JSON output of sluice bench. Its fields are a stable interface for programs.
type Report struct {
	Target       string             `json:"target"`
	Protocol     string             `json:"protocol"`
	Loop         string             `json:"loop"` // open or closed
	Rate         float64            `json:"rate,omitempty"`
	Concurrency  int                `json:"concurrency"`
	Connections  int                `json:"connections,omitempty"`
	Pipeline     int                `json:"pipeline"`
	Keys         int64              `json:"keys"`
	Distribution string             `json:"distribution"`
	StartedAt    time.Time          `json:"started_at"`
	Seconds      float64            `json:"elapsed_seconds"`
	Requests     int64              `json:"requests"`
	Allowed      int64              `json:"allowed"`
	Denied       int64              `json:"denied"`
	Errors       int64              `json:"errors"`
	Aborted      int64              `json:"aborted"`
	PerSecond    float64            `json:"per_second"`
	Interrupted  bool               `json:"interrupted"`
	OnSchedule   bool               `json:"on_schedule"`
	Late         int64              `json:"late"`
	MaxLate      float64            `json:"max_late_seconds"`
	NeverSent    int64              `json:"never_sent"`
	Latency      map[string]float64 `json:"latency_seconds"`
	Histogram    []reportClass      `json:"histogram"`
	Responses    map[string]int64   `json:"responses"`   // by status code
	NoResponse   map[string]int64   `json:"no_response"` // by error
	Thresholds   []reportThreshold  `json:"thresholds"`
	Series       []reportPoint      `json:"series"`
}

type reportClass struct {
	From  float64 `json:"from_seconds"`
	To    float64 `json:"to_seconds"`
	Count int64   `json:"count"`
}

type reportThreshold struct {
	Threshold string `json:"threshold"`
	Passed    bool   `json:"passed"`
	Value     string `json:"value"`
}

type reportPoint struct {
	Offset   float64            `json:"offset_seconds"`
	Duration float64            `json:"duration_seconds"`
	Allowed  int64              `json:"allowed"`
	Denied   int64              `json:"denied"`
	Errors   int64              `json:"errors"`
	Latency  map[string]float64 `json:"latency_seconds"`
}

// Report returns the result for JSON.
func (b *Measured) Report() *Report {
	r := b.result
	out := &Report{
		Target: b.name, Protocol: b.protocol, Loop: "closed", Rate: b.plan.Rate, Concurrency: b.plan.Callers, Connections: b.conns,
		Pipeline: max(1, b.plan.Pipeline), Keys: b.keys, Distribution: "uniform", StartedAt: r.Begun, Seconds: r.Elapsed.Seconds(),
		Requests: r.Requests(), Allowed: r.Sum.Allowed, Denied: r.Sum.Denied, Errors: r.Sum.Failed, Aborted: r.Cut,
		PerSecond: r.PerSecond(), Interrupted: r.Interrupted, OnSchedule: !r.Behind(), Late: r.Late,
		MaxLate: seconds(r.MaxLate), NeverSent: r.Missed, Latency: latencyMap(&r.Sum.Latency),
		Responses: r.Codes, NoResponse: r.Reasons, Thresholds: []reportThreshold{}, Histogram: []reportClass{}, Series: []reportPoint{},
	}
	if b.plan.Rate > 0 {
		out.Loop = "open"
	}
	if b.zipf {
		out.Distribution = "zipf"
	}
	for _, c := range r.Sum.Latency.Classes() {
		out.Histogram = append(out.Histogram, reportClass{seconds(c.From), seconds(c.To), c.Count})
	}
	for _, v := range b.verdicts {
		out.Thresholds = append(out.Thresholds, reportThreshold{v.Threshold.String(), v.Kept, v.Got})
	}
	for i := range r.Points {
		p := &r.Points[i]
		out.Series = append(out.Series, reportPoint{
			p.At.Seconds(), p.For.Seconds(), p.Allowed, p.Denied, p.Failed, latencyMap(&p.Latency),
		})
	}
	return out
}

func latencyMap(h *loadgen.Histogram) map[string]float64 {
	if h.Count() == 0 {
		return map[string]float64{}
	}
	out := map[string]float64{"min": seconds(h.Min()), "mean": seconds(h.Mean()), "max": seconds(h.Max())}
	for _, p := range latencies {
		out[fmt.Sprintf("p%v", p)] = seconds(h.Percentile(p))
	}
	return out
}

func seconds(d time.Duration) float64 { return float64(loadgen.Round(d)) / 1e9 }
