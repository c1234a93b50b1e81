package adminmsg

import "time"

// Selector is the body of POST /v1/peek and /v1/reset. It selects the buckets of a rule for a key, of a descriptor of an
// Envoy domain, or of all limits that apply to a request.
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
	Duration string `json:"duration"` // text with a unit, such as 10m; 0s lifts a block
}

// Request is an HTTP request to match against the rules; it is not sent. Either URL or Path is set.
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

// BucketName identifies a bucket.
type BucketName struct {
	Rule string `json:"rule"`
	Key  Key    `json:"key"`
}

// BucketState is the state of a bucket.
type BucketState struct {
	Allowed           bool    `json:"allowed"`
	BlockedSeconds    float64 `json:"blocked_seconds,omitempty"`
	Limit             int64   `json:"limit"`
	Remaining         int64   `json:"remaining"`
	RetryAfterSeconds float64 `json:"retry_after_seconds"`
	ResetAfterSeconds float64 `json:"reset_after_seconds"`
	Source            string  `json:"source"`
}

// Bucket is a bucket and its state.
type Bucket struct {
	BucketName
	Tier string `json:"tier,omitempty"` // tier of the limit, such as "plan=pro", if several tiers have a limit for the key
	BucketState
}

// Peeked is the response of POST /v1/peek.
type Peeked struct {
	Buckets []Bucket `json:"buckets"`
}

// Changed is the response of POST /v1/reset: the buckets that were reset.
type Changed struct {
	Buckets []BucketName `json:"buckets"`
}

// RuleReset is the body of POST /v1/reset/rule, which resets one page of the keys of a rule.
type RuleReset struct {
	Rule      string `json:"rule"`
	PageToken string `json:"page_token,omitempty"` // NextPageToken of the previous page
	DryRun    bool   `json:"dry_run,omitempty"`    // count without removing
}

// RuleWasReset is the response of POST /v1/reset/rule.
type RuleWasReset struct {
	Rule          string `json:"rule"`
	Removed       *int64 `json:"removed"` // buckets and blocks; nil if the store cannot count them
	DryRun        bool   `json:"dry_run"`
	NextPageToken string `json:"next_page_token"` // "" on the last page
}

// Blocked is the response of POST /v1/block.
type Blocked struct {
	Changed
	Until *time.Time `json:"until"` // end of the block; nil if it was lifted
}

// KeyPage is the response of GET /v1/keys: one page of the store's buckets and blocks.
type KeyPage struct {
	Keys          []StoredKey `json:"keys"`
	NextPageToken string      `json:"next_page_token"` // "" on the last page
}

// StoredKey is a bucket or a block in the store.
type StoredKey struct {
	Rule             string       `json:"rule"`
	Key              Key          `json:"key,omitempty"`
	Digest           string       `json:"digest,omitempty"` // digest of the key if the store does not hold the key itself
	Blocked          bool         `json:"blocked"`          // the entry is a block
	ExpiresInSeconds float64      `json:"expires_in_seconds"`
	State            *BucketState `json:"state,omitempty"`
}
