package bench

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// Report is the result in JSON. Its fields are for programs to rely on.
type Report struct {
	Target       string             `json:"target"`
	Protocol     string             `json:"protocol"`
	Loop         string             `json:"loop"` // open or closed
	Rate         float64            `json:"rate,omitempty"`
	Callers      int                `json:"callers"`
	Connections  int                `json:"connections,omitempty"`
	Pipeline     int                `json:"pipeline"`
	Keys         int64              `json:"keys"`
	Distribution string             `json:"distribution"`
	Begun        time.Time          `json:"begun"`
	Seconds      float64            `json:"elapsed_seconds"`
	Requests     int64              `json:"requests"`
	Allowed      int64              `json:"allowed"`
	Denied       int64              `json:"denied"`
	Errors       int64              `json:"errors"`
	CutOff       int64              `json:"cut_off"`
	PerSecond    float64            `json:"per_second"`
	Interrupted  bool               `json:"interrupted"`
	KeptSchedule bool               `json:"kept_schedule"`
	Late         int64              `json:"late"`
	LateMax      float64            `json:"late_max_ms"`
	NeverSent    int64              `json:"never_sent"`
	Latency      map[string]float64 `json:"latency_ms"`
	Histogram    []reportClass      `json:"histogram"`
	Answers      map[string]int64   `json:"answers"`
	Reasons      map[string]int64   `json:"without_answer"`
	Thresholds   []reportVerdict    `json:"thresholds"`
	Series       []reportPoint      `json:"series"`
}

type reportClass struct {
	From  float64 `json:"from_ms"`
	To    float64 `json:"to_ms"`
	Count int64   `json:"count"`
}

type reportVerdict struct {
	Threshold string `json:"threshold"`
	Kept      bool   `json:"kept"`
	Got       string `json:"got"`
}

type reportPoint struct {
	At      float64            `json:"at_seconds"`
	For     float64            `json:"for_seconds"`
	Allowed int64              `json:"allowed"`
	Denied  int64              `json:"denied"`
	Errors  int64              `json:"errors"`
	Latency map[string]float64 `json:"latency_ms"`
}

// Report is the result for programs.
func (b *Measured) Report() *Report {
	r := b.result
	out := &Report{
		Target: b.name, Protocol: b.protocol, Loop: "closed", Rate: b.plan.Rate, Callers: b.plan.Callers, Connections: b.conns,
		Pipeline: max(1, b.plan.Pipeline), Keys: b.keys, Distribution: "uniform", Begun: r.Begun, Seconds: r.Elapsed.Seconds(),
		Requests: r.Requests(), Allowed: r.Sum.Allowed, Denied: r.Sum.Denied, Errors: r.Sum.Failed, CutOff: r.Cut,
		PerSecond: r.PerSecond(), Interrupted: r.Interrupted, KeptSchedule: !r.Behind(), Late: r.Late,
		LateMax: milliseconds(r.MaxLate), NeverSent: r.Missed, Latency: latencyMap(&r.Sum.Latency),
		Answers: r.Codes, Reasons: r.Reasons, Thresholds: []reportVerdict{}, Histogram: []reportClass{}, Series: []reportPoint{},
	}
	if b.plan.Rate > 0 {
		out.Loop = "open"
	}
	if b.zipf {
		out.Distribution = "zipf"
	}
	for _, c := range r.Sum.Latency.Classes() {
		out.Histogram = append(out.Histogram, reportClass{milliseconds(c.From), milliseconds(c.To), c.Count})
	}
	for _, v := range b.verdicts {
		out.Thresholds = append(out.Thresholds, reportVerdict{v.Threshold.String(), v.Kept, v.Got})
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
	out := map[string]float64{"min": milliseconds(h.Min()), "mean": milliseconds(h.Mean()), "max": milliseconds(h.Max())}
	for _, p := range latencies {
		out[fmt.Sprintf("p%v", p)] = milliseconds(h.Percentile(p))
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(loadgen.Round(d)) / 1e6 }
