package queue

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluiceproject/sluice/internal/problem"
)

// view is the status of an item for clients. It excludes rules, keys and errors of the gateway.
type view struct {
	ID         string      `json:"id"`
	State      string      `json:"state"`
	Position   int         `json:"position,omitempty"`
	Attempts   int         `json:"attempts"`
	AcceptedAt time.Time   `json:"accepted_at"`
	ExpiresAt  *time.Time  `json:"expires_at,omitempty"`
	Result     *resultView `json:"result,omitempty"`
}

type resultView struct {
	Status     int         `json:"status"`
	Header     http.Header `json:"headers"`
	Body       *string     `json:"body,omitempty"`
	BodyBase64 string      `json:"body_base64,omitempty"` // for a body that is not UTF-8
	Truncated  bool        `json:"truncated,omitempty"`
}

func viewOf(r *Result) *resultView {
	if r == nil {
		return nil
	}
	v := &resultView{Status: r.Status, Header: r.Header, Truncated: r.Truncated}
	if v.Header == nil {
		v.Header = http.Header{}
	}
	if utf8.Valid(r.Body) {
		text := string(r.Body)
		v.Body = &text
	} else {
		v.BodyBase64 = base64.StdEncoding.EncodeToString(r.Body)
	}
	return v
}

// Handler returns the handler of the status API below StatusPrefix: GET returns the status of a request, DELETE cancels it. The
// ID is the only authorization: IDs cannot be guessed, and there is no list.
func (q *Queue) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		id, ok := strings.CutPrefix(r.URL.Path, StatusPrefix)
		if !ok || !validID(id) {
			refuse(w, r, ErrNotFound)
			return
		}
		var st *Status
		var err error
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			st, err = q.Get(r.Context(), id)
		case http.MethodDelete:
			st, err = q.Cancel(r.Context(), id)
		default:
			w.Header().Set("Allow", "GET, HEAD, DELETE")
			writeProblem(w, r, http.StatusMethodNotAllowed, "Use GET for the status or DELETE to cancel.")
			return
		}
		if err != nil {
			refuse(w, r, err)
			return
		}
		show(w, st)
	})
}

// show writes the status of an item.
func show(w http.ResponseWriter, st *Status) {
	v := view{
		ID: st.ID, State: st.State.String(), Position: st.Position, Attempts: st.Attempts, AcceptedAt: st.Accepted, Result: viewOf(st.Result),
	}
	if !st.Expires.IsZero() {
		v.ExpiresAt = &st.Expires
	}
	if st.State == Queued || st.State == Delivering {
		w.Header().Set("Retry-After", strconv.Itoa(pollInterval(st, time.Now())))
	}
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, v)
}

// pollInterval returns the seconds, rounded up, until the state may change: at the next attempt or at the expiry.
func pollInterval(st *Status, now time.Time) int {
	at := st.Next
	if !st.Expires.IsZero() && st.Expires.Before(at) {
		at = st.Expires
	}
	return min(max(1, int((at.Sub(now)+time.Second-1)/time.Second)), maxPoll)
}

// maxPoll is the maximum Retry-After in seconds. It is bounded because an operator may reset the bucket.
const maxPoll = 60

// refuse writes the problem response of an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		writeProblem(w, r, http.StatusNotFound, "The request was not found, or its result has expired.")
	case errors.Is(err, ErrDelivering):
		writeProblem(w, r, http.StatusConflict, "The request is being delivered and cannot be cancelled.")
	case errors.Is(err, ErrDone):
		writeProblem(w, r, http.StatusConflict, "The request is already done.")
	default:
		w.Header().Set("Retry-After", "5")
		writeProblem(w, r, http.StatusServiceUnavailable, "The queue is unavailable.")
	}
}

// writeProblem writes a problem document (RFC 9457).
func writeProblem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p := problem.New(status, detail)
	p.Instance = problem.Instance(r)
	p.Write(w)
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil { // cannot happen with these types
		b = []byte("{}")
	}
	_, _ = w.Write(append(b, '\n'))
}
