package simulate

import (
	"time"
)

// ReportJSON is the JSON output of simulate.
type ReportJSON struct {
	Start     time.Time        `json:"start"`
	End       time.Time        `json:"end"`
	Requests  int64            `json:"requests"`
	Allowed   int64            `json:"allowed"`
	Denied    int64            `json:"denied"`
	Delayed   int64            `json:"delayed"`
	Queued    int64            `json:"queued"`
	Rejected  int64            `json:"rejected"`
	Unlimited int64            `json:"unlimited"`
	Recorded  map[string]int64 `json:"recorded"` // decisions recorded in the log
	Rules     []simulatedRule  `json:"rules"`
	Over      simulatedOver    `json:"over_time"`
	Logs      []simulatedLog   `json:"logs"`
	Notes     []string         `json:"notes"`
}

type simulatedRule struct {
	Name     string         `json:"name"`
	File     string         `json:"file"`
	Line     int            `json:"line"`
	Shadow   bool           `json:"shadow"`
	OnLimit  string         `json:"on_limit"`
	Requests int64          `json:"requests"`
	Denied   int64          `json:"denied"`
	Delayed  int64          `json:"delayed"`
	Queued   int64          `json:"queued"`
	Peak     int64          `json:"peak_per_second"`
	MeanWait float64        `json:"mean_wait_seconds"`
	MaxWait  float64        `json:"max_wait_seconds"`
	Unseen   []string       `json:"missing_fields"`
	Keys     []simulatedKey `json:"keys"`
	Missed   int64          `json:"max_key_error"` // counts of keys may be too low by up to this
	Over     simulatedOver  `json:"over_time"`
}

type simulatedKey struct {
	Key   string `json:"key"`
	Count int64  `json:"count"`
}

type simulatedOver struct {
	Interval  float64 `json:"interval_seconds"`
	Intervals []Part  `json:"intervals"`
}

type simulatedLog struct {
	Name       string           `json:"name"`
	Format     string           `json:"format"`
	Columns    string           `json:"columns"` // fields of CSV and JSON logs by attribute
	Resolution float64          `json:"time_resolution_seconds"`
	Disorder   float64          `json:"max_disorder_seconds"`
	Lines      int              `json:"lines"`
	Invalid    int              `json:"invalid_lines"`
	Hosts      int64            `json:"host_name_requests"`
	Errors     []simulatedError `json:"errors"`
}

type simulatedError struct {
	Line int    `json:"line"`
	Msg  string `json:"message"`
	Text string `json:"text"`
}

// JSON returns the report as JSON.
func (r *Report) JSON() *ReportJSON {
	s := &ReportJSON{
		Start: r.Start.UTC(), End: r.End.UTC(), Requests: r.Requests, Allowed: r.Allowed, Denied: r.Denied, Delayed: r.Delayed, Queued: r.Queued,
		Rejected: r.Rejected, Unlimited: r.Unlimited, Recorded: r.Recorded, Rules: []simulatedRule{}, Over: overOf(&r.Timeline), Logs: []simulatedLog{},
		Notes: append([]string{}, simulatedNotes(r)...),
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		one := simulatedRule{
			Name: rule.Name, File: rule.At.File, Line: rule.At.Line, Shadow: rule.Shadow, OnLimit: rule.OnLimit.String(), Requests: rule.Requests,
			Denied: rule.Denied, Delayed: rule.Delayed, Queued: rule.Queued, Peak: rule.Peak, MeanWait: rule.MeanWait.Seconds(), MaxWait: rule.MaxWait.Seconds(),
			Unseen: rule.Unseen, Keys: []simulatedKey{}, Missed: rule.Missed, Over: overOf(&rule.Timeline),
		}
		for _, k := range rule.Keys {
			one.Keys = append(one.Keys, simulatedKey{keyParts(k.Parts), k.Count})
		}
		s.Rules = append(s.Rules, one)
	}
	for i := range r.Logs {
		from := &r.Logs[i]
		l := simulatedLog{
			Name: from.Name, Format: from.Format, Columns: from.Mapping, Resolution: from.Resolution.Seconds(), Disorder: from.Disorder.Seconds(),
			Lines: from.Lines, Invalid: from.Bad, Hosts: from.Hosts, Errors: []simulatedError{},
		}
		for _, f := range from.Faults {
			l.Errors = append(l.Errors, simulatedError{f.Line, f.Err.Error(), f.Text})
		}
		s.Logs = append(s.Logs, l)
	}
	return s
}

func overOf(t *Timeline) simulatedOver {
	return simulatedOver{Interval: t.Each.Seconds(), Intervals: append([]Part{}, t.Parts...)}
}
