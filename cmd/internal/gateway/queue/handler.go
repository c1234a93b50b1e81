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

// view is a status as callers see it. Rules, keys and why the gateway failed are not their business.
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
	BodyBase64 string      `json:"body_base64,omitempty"` // in place of a body that is not UTF-8
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

// Handler answers callers below StatusPrefix: GET tells what became of a request, DELETE cancels it. Who knows the id may;
// ids cannot be guessed, and there is no list.
func (q *Queue) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		id, ok := strings.CutPrefix(r.URL.Path, StatusPrefix)
		if !ok || !validID(id) {
			refuse(w, ErrNotFound)
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
			problem.New(http.StatusMethodNotAllowed, "ask with GET, cancel with DELETE").Write(w)
			return
		}
		if err != nil {
			refuse(w, err)
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

// pollInterval is in how many seconds, rounded up, the state may be another: when it is tried, or expires before that.
func pollInterval(st *Status, now time.Time) int {
	at := st.Next
	if !st.Expires.IsZero() && st.Expires.Before(at) {
		at = st.Expires
	}
	return min(max(1, int((at.Sub(now)+time.Second-1)/time.Second)), maxPoll)
}

// maxPoll is the longest that callers are told to wait, in seconds: an operator may have made room.
const maxPoll = 60

// refuse says why there is no answer.
func refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		problem.New(http.StatusNotFound, "there is no such request, or its result is no longer kept").Write(w)
	case errors.Is(err, ErrDelivering):
		problem.New(http.StatusConflict, "it is being delivered, and cannot be cancelled any more").Write(w)
	case errors.Is(err, ErrDone):
		problem.New(http.StatusConflict, "it is done already").Write(w)
	default:
		w.Header().Set("Retry-After", "5")
		problem.New(http.StatusServiceUnavailable, "the queue does not answer now").Write(w)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil { // nothing here is of a kind that could fail
		b = []byte("{}")
	}
	_, _ = w.Write(append(b, '\n'))
}
