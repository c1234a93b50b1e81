package recommend

import (
	"time"

	"github.com/sluiceproject/sluice"
)

// Report is a recommendation with its evidence.
type Report struct {
	Config
	Logs       []Log
	Start, End time.Time // of the first and the last request
	Requests   int
	Keys       int
	Sample     int64 // 1: all keys; n: one of n keys, because there are too many
	Dropped    int64 // requests after the memory bound was reached
	Late       int64
	CheapCost  int64

	Block      time.Duration
	Training   Part
	Validation Part
	Whole      Part  // the limit on all blocks
	Crawlers   Class // requests of all blocks

	Frontier []Point // none for a concurrency limit
	Knee     *Point
	Limit    sluice.Limit
	// BurstLow and BurstHigh bound the burst of a log with exact times.
	BurstLow, BurstHigh int64
	Fence               int64 // what a key may need before it is an outlier; 0: there are too few keys to tell
	MaxDelay            time.Duration

	Outliers   []Outlier // those that need most; at most maxOutliers
	Algorithms []Candidate
	Reason     string // for the algorithm
	Capacity   *CapacityUse
	Confidence Confidence
	Curves     []Curve
	Top        []KeyNeed

	Rule, RuleTest string   // ready to paste
	Written        []string // files that Write wrote
	Notes          []string
}

// Log is a log that was read.
type Log struct {
	Name    string   `json:"name"`
	Format  string   `json:"format"`
	Mapping string   `json:"mapping,omitempty"` // columns found by name or given
	Lines   int      `json:"lines"`
	Invalid int      `json:"invalid_lines"`
	Errors  []string `json:"errors"` // the first ones, with their lines
}

// Part is what the limit did to a part of the traffic.
type Part struct {
	Blocks   int   `json:"blocks"`
	Clients  Class `json:"clients"` // neither crawlers nor outliers
	Crawlers Class `json:"crawlers"`
	Outliers Class `json:"outliers"`
}

// Class counts keys of one kind.
type Class struct {
	Keys       int   `json:"keys"`
	KeysDenied int   `json:"keys_denied"` // keys with a denied request
	Requests   int64 `json:"requests"`
	Denied     int64 `json:"denied"`
}

// Outlier is a key that needs far more than the others.
type Outlier struct {
	Key      string `json:"key"` // by Config.Mask
	Requests int64  `json:"requests"`
	Need     int64  `json:"need"` // burst at the recommended rate, or permits
	Denied   int64  `json:"denied"`
}

// maxOutliers is the maximum number of outliers and top keys in a report.
const maxOutliers = 50

// Candidate is an algorithm, replayed at the recommended rate and size.
type Candidate struct {
	Algorithm string `json:"algorithm"`
	Limit     string `json:"limit"`
	Clients   Class  `json:"clients"`
	Most      int64  `json:"most_in_window"` // most that one key can be allowed in the time in which the burst refills
	Bytes     int64  `json:"bytes_per_key"`

	limit sluice.Limit
}

// CapacityUse compares the recommendation with a stated capacity.
type CapacityUse struct {
	PerSecond float64 `json:"per_second"`
	OneKey    float64 `json:"one_key"` // most that one key can be allowed in a second
	Busiest   int64   `json:"busiest_second"`
	Fits      bool    `json:"fits"` // Busiest is within the capacity
}

// Confidence says how far the evidence carries.
type Confidence struct {
	Level  string  `json:"level"` // "high": all checks hold; "medium": validation and 4 others; else "low"
	Checks []Check `json:"checks"`
}

// Check is a condition on the evidence.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// Curve is the rates that keys need for one burst, the largest first.
type Curve struct {
	Burst  int64    `json:"burst"`
	Points [][2]any `json:"points"` // rank from 1, rate per second; null if no rate is enough
}

// KeyNeed is a key with the rates per second that it needs, in the order of Report.Curves.
type KeyNeed struct {
	Key     string     `json:"key"`
	Need    []*float64 `json:"need"`
	Outlier bool       `json:"outlier"`
}
