package adminapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// Queue is the operator's interface to the durable queue.
type Queue struct {
	Counts func(ctx context.Context) adminmsg.QueueCounts
	// List returns up to limit items in a state, or all queued, delivering and dead items if it is "", and the token of the
	// next page, "" on the last.
	List func(ctx context.Context, state, token string, limit int) (items []adminmsg.QueueItem, next string, err error)
	Get  func(ctx context.Context, id string) (adminmsg.QueueItem, error)
	// Cancel and Requeue return the item with its new state.
	Cancel, Requeue func(ctx context.Context, id string) (adminmsg.QueueItem, error)
}

// Errors of the functions of a [Queue].
var (
	ErrNoItem    = errors.New("no such queue item, or its result has expired")
	ErrItemState = errors.New("not possible in the current state of the item")
	ErrQueueDown = errors.New("queue unavailable")
)

// queueRoutes returns the handlers of the queue, by path and method.
func (a *api) queueRoutes() map[string]map[string]handler {
	withQueue := func(h handler) handler {
		return func(w http.ResponseWriter, r *http.Request) (any, error) {
			if a.Queue == nil {
				return nil, problemf(http.StatusNotImplemented, "the queue is disabled: set queue.directory or queue.url in the configuration")
			}
			return h(w, r)
		}
	}
	return map[string]map[string]handler{
		"/v1/queue":         {http.MethodGet: withQueue(a.listQueue)},
		"/v1/queue/item":    {http.MethodGet: withQueue(a.queueItem)},
		"/v1/queue/cancel":  {http.MethodPost: withQueue(a.changeItem("cancel"))},
		"/v1/queue/requeue": {http.MethodPost: withQueue(a.changeItem("requeue"))},
	}
}

func queueProblem(err error) error {
	switch {
	case errors.Is(err, ErrNoItem):
		return problemf(http.StatusNotFound, "%v: GET /v1/queue lists the items", err)
	case errors.Is(err, ErrItemState):
		return problemf(http.StatusConflict, "%v", err)
	case errors.Is(err, ErrQueueDown):
		return problemf(http.StatusServiceUnavailable, "the queue is unavailable: send the request again later; the log of the service has the cause")
	}
	return err
}

// listQueue returns the counts of the queue and a page of items.
func (a *api) listQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	limit, query := 100, r.URL.Query()
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 1000 {
			return nil, problemf(http.StatusBadRequest, "limit: %.40q: write 1 to 1000 items per page", text)
		}
	}
	state := query.Get("state")
	switch state {
	case "", "queued", "delivering", "dead", "done", "cancelled":
	default:
		return nil, problemf(http.StatusBadRequest, "state: %.40q: write queued, delivering, dead, done or cancelled, or leave it out for queued, delivering and dead items", state)
	}
	token := query.Get("page_token")
	if _, err := strconv.ParseUint(token, 10, 64); token != "" && err != nil {
		return nil, problemf(http.StatusBadRequest, "page_token: %.40q is not a next_page_token: write that of the previous page, or leave it out for the first page", token)
	}
	items, next, err := a.Queue.List(r.Context(), state, token, limit)
	if err != nil {
		return nil, queueProblem(err)
	}
	for i := range items {
		a.name(&items[i])
	}
	return adminmsg.QueuePage{Counts: a.Queue.Counts(r.Context()), Items: append([]adminmsg.QueueItem{}, items...), NextPageToken: next}, nil
}

// name sets the key of an item from its encoded form.
func (a *api) name(it *adminmsg.QueueItem) {
	it.Key = keyOf(a.Rules().KeyParts(&sluice.Rule{Name: it.Rule}, it.RawKey))
}

func (a *api) queueItem(_ http.ResponseWriter, r *http.Request) (any, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return nil, problemf(http.StatusBadRequest, "id: write the ID of a queue item, as in the 202 response or in GET /v1/queue")
	}
	it, err := a.Queue.Get(r.Context(), id)
	if err != nil {
		return nil, queueProblem(err)
	}
	a.name(&it)
	return it, nil
}

// withState replaces an [ErrItemState] by an error with the state of the item.
func (a *api) withState(ctx context.Context, what, id string, err error) error {
	if !errors.Is(err, ErrItemState) {
		return err
	}
	it, unread := a.Queue.Get(ctx, id)
	if unread != nil {
		return err
	}
	state := map[string]string{"dead": "a dead letter", "delivering": "being delivered"}[it.State]
	if what == "requeue" {
		return problemf(http.StatusConflict, "the item is %s: only dead letters can be requeued", cmp.Or(state, it.State))
	}
	return problemf(http.StatusConflict, "the item is %s: only queued items and dead letters can be cancelled", cmp.Or(state, it.State))
}

// changeItem cancels or requeues a queue item.
func (a *api) changeItem(what string) handler {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		var in adminmsg.QueueID
		var it adminmsg.QueueItem
		err := readJSON(r, &in)
		if err == nil && in.ID == "" {
			err = problemf(http.StatusBadRequest, "id: write the ID of a queue item, as in the 202 response or in GET /v1/queue")
		}
		if err == nil {
			do := a.Queue.Cancel
			if what == "requeue" {
				do = a.Queue.Requeue
			}
			it, err = do(context.WithoutCancel(r.Context()), in.ID)
			err = queueProblem(a.withState(r.Context(), what, in.ID, err))
		}
		a.audit(r, "queue "+what, "", err, "queue_item", in.ID)
		if err != nil {
			return nil, err
		}
		a.name(&it)
		return it, nil
	}
}
