package adminmsg

import (
	"net/http"
	"time"
)

// QueuePage is the answer of GET /v1/queue.
type QueuePage struct {
	Counts QueueCounts `json:"counts"`
	Items  []QueueItem `json:"items"`
	Next   string      `json:"next"` // "" at the end
}

// QueueCounts say how full a queue is.
type QueueCounts struct {
	Queued        int64   `json:"queued"`
	Delivering    int64   `json:"delivering"`
	Dead          int64   `json:"dead"`
	Ended         int64   `json:"ended"` // done or cancelled
	Bytes         int64   `json:"bytes"`
	OldestSeconds float64 `json:"oldest_seconds"`
	Up            bool    `json:"up"`
}

// QueueItem is a request that is kept, the answer of GET /v1/queue/item and of what changes one.
type QueueItem struct {
	ID       string       `json:"id"`
	State    string       `json:"state"`
	Rule     string       `json:"rule"`
	Key      Key          `json:"key"`
	RawKey   string       `json:"-"`                  // as the rule has it; the service makes Key of it
	Position int          `json:"position,omitempty"` // in its rule and key
	Attempts int          `json:"attempts"`
	Size     int          `json:"size"`
	Accepted time.Time    `json:"accepted_at"`
	Changed  *time.Time   `json:"changed_at"`
	Next     *time.Time   `json:"next_at"`
	Expires  *time.Time   `json:"expires_at"`
	Error    string       `json:"error,omitempty"`
	Result   *QueueResult `json:"result,omitempty"`
}

// QueueResult is what the upstream answered.
type QueueResult struct {
	Status     int         `json:"status"`
	Header     http.Header `json:"headers,omitempty"`
	Body       string      `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"` // in place of a body that is not UTF-8
	Truncated  bool        `json:"truncated,omitempty"`
}

// QueueID is the body of POST /v1/queue/cancel and /v1/queue/replay.
type QueueID struct {
	ID string `json:"id"`
}
