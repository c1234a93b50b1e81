package adminclient

import (
	"net/http"
	"time"
)

// QueuePage is the answer of GET /v1/queue.
type QueuePage struct {
	Counts struct {
		Queued        int64   `json:"queued"`
		Delivering    int64   `json:"delivering"`
		Dead          int64   `json:"dead"`
		Done          int64   `json:"done"`
		Bytes         int64   `json:"bytes"`
		OldestSeconds float64 `json:"oldest_s"`
		Up            bool    `json:"up"`
	} `json:"counts"`
	Items []QueueItem `json:"items"`
	Next  string      `json:"next"` // empty at the end
}

// QueueItem is a request that is kept, the answer of GET /v1/queue/item and of what changes one.
type QueueItem struct {
	ID       string     `json:"id"`
	State    string     `json:"state"`
	Rule     string     `json:"rule"`
	Key      Key        `json:"key"`
	Position int        `json:"position"`
	Attempts int        `json:"attempts"`
	Size     int64      `json:"size"`
	Accepted time.Time  `json:"accepted_at"`
	Changed  *time.Time `json:"changed_at"`
	Next     *time.Time `json:"next_at"`
	Expires  *time.Time `json:"expires_at"`
	Error    string     `json:"error"`
	Result   *struct {
		Status     int         `json:"status"`
		Header     http.Header `json:"headers"`
		Body       string      `json:"body"`
		BodyBase64 []byte      `json:"body_base64"`
		Truncated  bool        `json:"truncated"`
	} `json:"result"`
}

// QueueID names a request that is kept.
type QueueID struct {
	ID string `json:"id"`
}
