package adminmsg

import "time"

// Top is the answer of GET /v1/top.
type Top struct {
	Since   time.Time  `json:"since"`
	Entries []TopEntry `json:"entries"`
}

// TopEntry is a key that something happens to often: between Count-Error and Count times.
type TopEntry struct {
	BucketName
	Count int64 `json:"count"`
	Error int64 `json:"error"`
}

// Event is what GET /v1/watch tells at intervals: what happened since the last. Rules that nothing happened to are left
// out.
type Event struct {
	T     time.Time    `json:"t"`
	Rules []RuleCounts `json:"rules"`
	Top   []TopEntry   `json:"top"`
}

// RuleCounts is what a rule has decided of late.
type RuleCounts struct {
	Name string `json:"name"`
	Counts
}
