package adminmsg

import "time"

// Verdict is the judgement on a rule, from its recent decisions in this instance.
type Verdict struct {
	Kind        string    `json:"kind"` // such as too_strict; docs/verdicts.md lists them
	Limit       string    `json:"limit"`
	Since       time.Time `json:"since"` // time at which the kind was first found
	Text        string    `json:"text"`
	Evidence    []string  `json:"evidence"` // at most four facts
	Advice      *Advice   `json:"advice"`   // nil if there is nothing to say
	Confidence  string    `json:"confidence"`
	NeedsChange bool      `json:"needs_change"`
}

// Advice is what to change. Without a rate the limit is kept.
type Advice struct {
	Text      string `json:"text"`
	Rate      string `json:"rate,omitempty"` // such as 15/min
	Burst     int64  `json:"burst,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Limit     string `json:"limit,omitempty"` // as in a rule file: {rate: 15/min, burst: 20}
}
