package adminmsg

import "time"

// Selector is the body of POST /v1/peek and /v1/reset. It says which buckets are meant: those of a rule for somebody, of a
// descriptor of an Envoy domain, or those that a request counts in.
type Selector struct {
	Rule       string   `json:"rule,omitempty"`
	Key        Key      `json:"key,omitempty"`
	Domain     string   `json:"domain,omitempty"`
	Descriptor []Entry  `json:"descriptor,omitempty"`
	Request    *Request `json:"request,omitempty"`
}

// Block is the body of POST /v1/block.
type Block struct {
	Selector
	For string `json:"for"` // a duration; 0s lifts a block
}

// Request is an HTTP request that is not sent but asked about. It has a URL or a path.
type Request struct {
	Method     string            `json:"method"`
	URL        string            `json:"url,omitempty"`
	Path       string            `json:"path,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	IP         string            `json:"ip,omitempty"`
	Claims     map[string]string `json:"claims,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Explain is the body of POST /v1/explain.
type Explain struct {
	Request     *Request  `json:"request,omitempty"`
	Domain      string    `json:"domain,omitempty"`
	Descriptors [][]Entry `json:"descriptors,omitempty"`
	Cost        int64     `json:"cost,omitempty"`
}

// BucketName says which bucket it is.
type BucketName struct {
	Rule string `json:"rule"`
	Key  Key    `json:"key"`
}

// BucketState is what is left of a bucket.
type BucketState struct {
	Allowed           bool    `json:"allowed"`
	BlockedSeconds    float64 `json:"blocked_seconds,omitempty"`
	Limit             int64   `json:"limit"`
	Remaining         int64   `json:"remaining"`
	RetryAfterSeconds float64 `json:"retry_after_seconds"`
	ResetAfterSeconds float64 `json:"reset_after_seconds"`
	Source            string  `json:"source"`
}

// Bucket is where something is counted, and what is left of it.
type Bucket struct {
	BucketName
	Tier string `json:"tier,omitempty"` // whose limit it is, such as "plan=pro", if several tiers have one
	BucketState
}

// Peeked is the answer of POST /v1/peek.
type Peeked struct {
	Buckets []Bucket `json:"buckets"`
}

// Changed is the answer of POST /v1/reset: the buckets that it was done to.
type Changed struct {
	Buckets []BucketName `json:"buckets"`
}

// RuleReset is the body of POST /v1/reset/rule: a page of a reset of all that is counted under a rule.
type RuleReset struct {
	Rule   string `json:"rule"`
	After  string `json:"after,omitempty"`   // Next of the page before
	DryRun bool   `json:"dry_run,omitempty"` // count only
}

// RuleWasReset is the answer of POST /v1/reset/rule.
type RuleWasReset struct {
	Rule    string `json:"rule"`
	Removed *int64 `json:"removed"` // buckets and blocks; nil: the store forgets them without knowing how many there are
	DryRun  bool   `json:"dry_run"`
	Next    string `json:"next"` // "" at the end
}

// Blocked is the answer of POST /v1/block.
type Blocked struct {
	Changed
	Until *time.Time `json:"until"` // nil if the block is lifted
}

// KeyPage is the answer of GET /v1/keys: a part of what the store holds.
type KeyPage struct {
	Keys []StoredKey `json:"keys"`
	Next string      `json:"next"` // "" at the end
}

// StoredKey is something that the store holds.
type StoredKey struct {
	Rule        string       `json:"rule"`
	Key         Key          `json:"key,omitempty"`
	Digest      string       `json:"digest,omitempty"` // in place of a key that the store does not keep
	Blocked     bool         `json:"blocked"`          // this says that the key is blocked, for as long as it is kept
	KeptSeconds float64      `json:"kept_seconds"`
	State       *BucketState `json:"state,omitempty"`
}
