package adminmsg

import "time"

// Top is the response of GET /v1/top.
type Top struct {
	Since   time.Time  `json:"since"`
	Entries []TopEntry `json:"entries"`
}

// TopEntry is one of the top keys. Its true count is between Count-MaxError and Count.
type TopEntry struct {
	BucketName
	Count    int64 `json:"count"`
	MaxError int64 `json:"max_error"`
}

// Event is an event of GET /v1/watch: the decisions since the previous event. Rules without decisions are left out.
type Event struct {
	Time  time.Time    `json:"time"`
	Rules []RuleCounts `json:"rules"`
	Top   []TopEntry   `json:"top"`
}

// RuleCounts is the number of decisions of a rule since the previous event.
type RuleCounts struct {
	Name string `json:"name"`
	Counts
}
