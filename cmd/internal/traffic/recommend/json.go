package recommend

import (
	"time"

	"github.com/sluiceproject/sluice"
)

// ReportJSON is a [Report] as JSON, with all points of the frontier and the rank curves for plots.
type ReportJSON struct {
	Logs         []Log        `json:"logs"`
	Start        time.Time    `json:"start"`
	End          time.Time    `json:"end"`
	Requests     int          `json:"requests"`
	Keys         int          `json:"keys"`
	Key          string       `json:"key"`
	For          Purpose      `json:"for"`
	Untouched    float64      `json:"untouched"`
	BlockSeconds float64      `json:"block_seconds"`
	Resolution   float64      `json:"resolution_seconds"`
	Sample       int64        `json:"sample"` // 1 in this number of keys
	Dropped      int64        `json:"requests_dropped"`
	Limit        limitJSON    `json:"limit"`
	Reason       string       `json:"reason"`
	Confidence   Confidence   `json:"confidence"`
	Training     Part         `json:"training"`
	Validation   Part         `json:"validation"`
	Whole        Part         `json:"whole"`
	Fence        int64        `json:"fence"`
	Outliers     []Outlier    `json:"outliers"`
	Frontier     []pointJSON  `json:"frontier"`
	Algorithms   []Candidate  `json:"algorithms"`
	Capacity     *CapacityUse `json:"capacity,omitempty"`
	Curves       []Curve      `json:"curves"`
	Top          []KeyNeed    `json:"top"`
	Notes        []string     `json:"notes"`
	Rule         string       `json:"rule"`
	RuleTest     string       `json:"rule_test"`
	Written      []string     `json:"written,omitempty"`
}

type limitJSON struct {
	Text      string  `json:"text"`
	Algorithm string  `json:"algorithm"`
	PerSecond float64 `json:"rate_per_second,omitempty"`
	Burst     int64   `json:"burst,omitempty"`
	BurstLow  int64   `json:"burst_low,omitempty"`
	BurstHigh int64   `json:"burst_high,omitempty"`
	Permits   int64   `json:"concurrent,omitempty"`
	MaxDelay  float64 `json:"max_delay_seconds,omitempty"`
}

type pointJSON struct {
	Rate         string           `json:"rate"`
	PerSecond    float64          `json:"rate_per_second"`
	Burst        int64            `json:"burst"`
	Backlog      float64          `json:"backlog"`
	Quantiles    map[string]int64 `json:"quantiles"`
	Outliers     int              `json:"outliers"`
	WholeBurst   int64            `json:"whole_burst"`
	WholeBacklog float64          `json:"whole_backlog"`
	Knee         bool             `json:"knee,omitempty"`
}

// quantileNames are the names of quantileShares.
var quantileNames = []string{"p50", "p90", "p99", "p99.9", "max"}

// JSON returns the report as JSON.
func (r *Report) JSON() *ReportJSON {
	j := &ReportJSON{
		Logs: append([]Log{}, r.Logs...), Start: r.Start, End: r.End, Requests: r.Requests, Keys: r.Keys, Key: r.Key, For: r.For, Untouched: float64(r.Untouched) / wholeShare,
		BlockSeconds: r.Block.Seconds(), Resolution: r.Resolution.Seconds(), Sample: r.Sample, Dropped: r.Dropped, Reason: r.Reason,
		Confidence: r.Confidence, Training: r.Training, Validation: r.Validation, Whole: r.Whole, Fence: r.Fence,
		Outliers: append([]Outlier{}, r.Outliers...), Frontier: []pointJSON{}, Algorithms: append([]Candidate{}, r.Algorithms...),
		Capacity: r.Capacity, Curves: append([]Curve{}, r.Curves...), Top: append([]KeyNeed{}, r.Top...), Notes: append([]string{}, r.Notes...),
		Rule: r.Rule, RuleTest: r.RuleTest, Written: r.Written,
	}
	j.Limit = limitJSON{Text: r.Limit.String(), Algorithm: r.Limit.Algorithm.String()}
	if r.Limit.Algorithm == sluice.Concurrency {
		j.Limit.Permits = r.Limit.Count
		return j
	}
	j.Limit.PerSecond, j.Limit.Burst, j.Limit.MaxDelay = r.Limit.Rate(), r.Limit.Max(), r.MaxDelay.Seconds()
	j.Limit.BurstLow, j.Limit.BurstHigh = r.BurstLow, r.BurstHigh
	for i := range r.Frontier {
		p := &r.Frontier[i]
		one := pointJSON{
			Rate: p.Rate.String(), PerSecond: p.Rate.PerSecond(), Burst: p.Burst, Backlog: p.Backlog, Quantiles: make(map[string]int64),
			Outliers: p.Outliers, WholeBurst: p.WholeBurst, WholeBacklog: p.WholeBacklog, Knee: p == r.Knee,
		}
		for n, name := range quantileNames {
			one.Quantiles[name] = p.Quantiles[n]
		}
		j.Frontier = append(j.Frontier, one)
	}
	return j
}
