package adminmsg

import (
	"net/http"
	"time"
)

// QueuePage is the response of GET /v1/queue.
type QueuePage struct {
	Counts        QueueCounts `json:"counts"`
	Items         []QueueItem `json:"items"`
	NextPageToken string      `json:"next_page_token"` // "" on the last page
}

// QueueCounts is the number of queue items by state, and their size and age.
type QueueCounts struct {
	Queued           int64   `json:"queued"`
	Delivering       int64   `json:"delivering"`
	Dead             int64   `json:"dead"`
	Ended            int64   `json:"ended"` // done or cancelled, and still stored
	Bytes            int64   `json:"bytes"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Up               bool    `json:"up"`
}

// QueueItem is a queue item: the response of GET /v1/queue/item, POST /v1/queue/cancel and POST /v1/queue/requeue.
type QueueItem struct {
	ID          string       `json:"id"`
	State       string       `json:"state"`
	Rule        string       `json:"rule"`
	Key         Key          `json:"key"`
	RawKey      string       `json:"-"`                  // encoded key of the rule, from which the service sets Key
	Position    int          `json:"position,omitempty"` // in its subqueue, from 1
	Attempts    int          `json:"attempts"`
	Size        int          `json:"size"`
	Accepted    time.Time    `json:"accepted_at"`
	Changed     *time.Time   `json:"changed_at"`
	NextAttempt *time.Time   `json:"next_attempt_at"`
	Expires     *time.Time   `json:"expires_at"`
	Error       string       `json:"error,omitempty"`
	Result      *QueueResult `json:"result,omitempty"`
}

// QueueResult is a response of the upstream.
type QueueResult struct {
	Status     int         `json:"status"`
	Header     http.Header `json:"headers,omitempty"`
	Body       string      `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"` // set instead of Body if the body is not UTF-8
	Truncated  bool        `json:"truncated,omitempty"`
}

// QueueID is the body of POST /v1/queue/cancel and /v1/queue/requeue.
type QueueID struct {
	ID string `json:"id"`
}
