package adminapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// Queue is what operators may ask and have done about requests that are kept for later.
type Queue struct {
	Counts func(ctx context.Context) adminmsg.QueueCounts
	// List lists up to n of a state, "" being all that are not done, and tells where to go on; "" at the end.
	List func(ctx context.Context, state, after string, n int) (items []adminmsg.QueueItem, next string, err error)
	Get  func(ctx context.Context, id string) (adminmsg.QueueItem, error)
	// Cancel and Replay return the item with the state that they have written.
	Cancel, Replay func(ctx context.Context, id string) (adminmsg.QueueItem, error)
}

// What a queue says that cannot do what it is asked.
var (
	ErrNoItem    = errors.New("there is no such request, or it is no longer kept")
	ErrItemState = errors.New("it cannot be done to this request now")
	ErrQueueDown = errors.New("the queue cannot be read or written now")
)

// queueRoutes are what is asked about the queue.
func (a *api) queueRoutes() map[string]map[string]handler {
	there := func(h handler) handler {
		return func(w http.ResponseWriter, r *http.Request) (any, error) {
			if a.Queue == nil {
				return nil, problemf(http.StatusNotImplemented, "there is no queue: set queue.directory or queue.url in the configuration")
			}
			return h(w, r)
		}
	}
	return map[string]map[string]handler{
		"/v1/queue":        {http.MethodGet: there(a.listQueue)},
		"/v1/queue/item":   {http.MethodGet: there(a.queueItem)},
		"/v1/queue/cancel": {http.MethodPost: there(a.changeItem("cancel"))},
		"/v1/queue/replay": {http.MethodPost: there(a.changeItem("replay"))},
	}
}

func queueProblem(err error) error {
	switch {
	case errors.Is(err, ErrNoItem):
		return problemf(http.StatusNotFound, "%v: GET /v1/queue lists them", err)
	case errors.Is(err, ErrItemState):
		return problemf(http.StatusConflict, "%v", err)
	case errors.Is(err, ErrQueueDown):
		return problemf(http.StatusServiceUnavailable, "%v", err)
	}
	return err
}

// listQueue lists what is kept.
func (a *api) listQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	n, query := 100, r.URL.Query()
	if text := query.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > 1000 {
			return nil, problemf(http.StatusBadRequest, "n: ask for 1 to 1000 requests at a time")
		}
	}
	state := query.Get("state")
	switch state {
	case "", "queued", "delivering", "dead", "done", "cancelled":
	default:
		return nil, problemf(http.StatusBadRequest, "state: write queued, delivering, dead, done or cancelled; without it all are listed that are not done")
	}
	after := query.Get("after")
	if _, err := strconv.ParseUint(after, 10, 64); after != "" && err != nil {
		return nil, problemf(http.StatusBadRequest, "after: write the next of the page before")
	}
	items, next, err := a.Queue.List(r.Context(), state, after, n)
	if err != nil {
		return nil, queueProblem(err)
	}
	for i := range items {
		a.name(&items[i])
	}
	return adminmsg.QueuePage{Counts: a.Queue.Counts(r.Context()), Items: append([]adminmsg.QueueItem{}, items...), Next: next}, nil
}

// name writes whose room a request waits for as people read it.
func (a *api) name(it *adminmsg.QueueItem) {
	it.Key = keyOf(a.Rules().KeyParts(&sluice.Rule{Name: it.Rule}, it.RawKey))
}

func (a *api) queueItem(_ http.ResponseWriter, r *http.Request) (any, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return nil, problemf(http.StatusBadRequest, "id: write which request, as it was told with 202")
	}
	it, err := a.Queue.Get(r.Context(), id)
	if err != nil {
		return nil, queueProblem(err)
	}
	a.name(&it)
	return it, nil
}

// changeItem cancels or replays a request.
func (a *api) changeItem(what string) handler {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		var in adminmsg.QueueID
		var it adminmsg.QueueItem
		err := readJSON(r, &in)
		if err == nil && in.ID == "" {
			err = problemf(http.StatusBadRequest, "id: write which request, as it was told with 202")
		}
		if err == nil {
			do := a.Queue.Cancel
			if what == "replay" {
				do = a.Queue.Replay
			}
			it, err = do(context.WithoutCancel(r.Context()), in.ID)
			err = queueProblem(err)
		}
		a.audit(r, "queue "+what, "", err, "id", in.ID)
		if err != nil {
			return nil, err
		}
		a.name(&it)
		return it, nil
	}
}
