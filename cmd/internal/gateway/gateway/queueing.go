package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/buffers"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/quota"
)

// Queue stores requests and returns those that are due.
type Queue interface {
	Enqueuer
	// Next blocks until an item is due. It returns an error when ctx is done.
	Next(ctx context.Context) (*queue.Delivery, error)
}

// Enqueuer stores requests that are delivered later.
type Enqueuer interface {
	Put(ctx context.Context, it queue.Item) (id string, err error)
	// HasPending reports whether earlier requests of the key are still queued by the rule, which delivers them in order.
	HasPending(rule, key string) bool
	// MaxItem returns the maximum size of an item with its headers, in bytes.
	MaxItem() int
}

const (
	// enqueueReadTimeout bounds the time to read the body of a queued request, which is read completely before the response.
	enqueueReadTimeout = 60 * time.Second
	// enqueueCopies is the number of copies of a body while the queue stores it: encoded, encrypted and sent.
	enqueueCopies = 3
)

// credentials are headers that are not stored unless the rule lists them in keep_headers.
var credentials = match.CredentialHeaders()

// enqueue stores a request and responds with 202. It never sends the 202 before the request is stored.
func (g *Gateway) enqueue(w http.ResponseWriter, r *http.Request, x *RequestContext, k *admission.QueueTarget) {
	if fault := g.tryEnqueue(w, r, x, k); fault != nil {
		fault.writeTo(w, r)
	}
}

func (g *Gateway) tryEnqueue(w http.ResponseWriter, r *http.Request, x *RequestContext, k *admission.QueueTarget) *rejection {
	if isServerWide(r) || len(r.Header["Upgrade"]) > 0 || strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return &rejection{
			status: http.StatusTooManyRequests, retryAfter: max(k.RetryAfter, time.Second), rule: k.Rule, denied: k.Denied,
			detail: "Rate limit exceeded, and streams cannot be queued.",
		}
	}
	body := buffers.Process.Buffer(x.Client, g.cfg.Queue.MaxItem())
	defer body.Free()
	if fault := x.readAll(r, &body, g.cfg.Queue.MaxItem()); fault != nil {
		return fault
	}
	header := storedHeader(r.Header, x, k.Options.KeepHeaders)
	item := queue.Item{
		Rule: k.Rule, Key: k.Key, Client: x.Client, Ordered: k.Options.Ordered,
		Method: r.Method, Scheme: scheme(r), Host: r.Host, Target: r.URL.RequestURI(), RemoteAddr: r.RemoteAddr,
		Header: header, Body: body.Bytes(), Claims: x.identity.Claims, Attributes: x.identity.Attributes,
		Attempts: k.Options.MaxAttempts, Expires: time.Now().Add(k.Options.ExpiresAfter), Results: k.Options.ResultTTL,
	}
	if names := withheld(r.Header, header); len(names) > 0 {
		item.Withheld = names
		for _, c := range k.Charges {
			item.Charges = append(item.Charges, queue.Charge(c))
		}
	}
	if lines := r.Header[queue.IdempotencyHeader]; len(lines) == 1 && len(lines[0]) <= 256 {
		item.IdempotencyKey = lines[0]
	}
	id, err := g.cfg.Queue.Put(r.Context(), item)
	switch {
	case errors.Is(err, queue.ErrTooLarge):
		return tooLargeToQueue()
	case errors.Is(err, queue.ErrShareFull):
		return &rejection{
			status: http.StatusTooManyRequests, retryAfter: max(k.RetryAfter, 5*time.Second), rule: k.Rule, denied: k.Denied,
			detail: "Too many requests of this client are queued, and the request was not accepted.",
		}
	case errors.Is(err, queue.ErrFull):
		return &rejection{
			status: http.StatusServiceUnavailable, retryAfter: max(k.RetryAfter, 5*time.Second),
			detail: "The queue is full, and the request was not accepted.",
		}
	case err != nil && clientClosed(r):
		return reject(statusClientClosed, "")
	case err != nil:
		g.log.Error("queueing request failed", "request_id", x.ID, "error", err)
		return &rejection{
			status: http.StatusServiceUnavailable, retryAfter: 5 * time.Second,
			detail: "The queue is unavailable, and the request may not have been accepted.",
		}
	}
	x.Queued, x.Rule, x.Item = true, k.Rule, id
	accepted(w, id, k.RetryAfter)
	return nil
}

// readAll reads the body of a request to be queued, of at most max bytes, and reserves memory for its copies. It does not
// read a body whose Content-Length is larger.
func (x *RequestContext) readAll(r *http.Request, to *buffers.Buffer, max int) *rejection {
	if x.body == nil {
		return nil
	}
	if r.ContentLength > int64(max) {
		return tooLargeToQueue()
	}
	control := http.NewResponseController(x.response.ResponseWriter)
	_ = control.SetReadDeadline(time.Now().Add(enqueueReadTimeout))
	err := to.ReadAll(r.Body)
	if err == nil {
		_ = control.SetReadDeadline(time.Time{})
		if !to.Reserve(enqueueCopies * len(to.Bytes())) {
			err = buffers.ErrFull
		}
	}
	switch {
	case errors.Is(err, buffers.ErrTooLarge):
		return tooLargeToQueue()
	case errors.Is(err, buffers.ErrFull):
		return &rejection{
			status: http.StatusServiceUnavailable, retryAfter: time.Second,
			detail: "Too many request bodies are being received, and the request was not accepted.",
		}
	case errors.As(err, new(*http.MaxBytesError)):
		return reject(http.StatusRequestEntityTooLarge, "The request body exceeds the maximum size of this route.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		bounds.QueuedBodyTime.Reached()
		return reject(http.StatusRequestTimeout, "The request did not arrive completely.")
	case err != nil:
		return reject(http.StatusBadRequest, "The request did not arrive completely.")
	}
	return nil
}

func tooLargeToQueue() *rejection {
	bounds.QueueItemSize.Reached()
	return reject(http.StatusRequestEntityTooLarge, "The request is too large to be queued.")
}

// storedHeader returns the header to store: as it would be forwarded, without credentials that are not listed in keep.
func storedHeader(h http.Header, x *RequestContext, keep []string) http.Header {
	h = h.Clone()
	named := make(http.Header, len(keep))
	if chain := x.Route.Authn; chain != nil {
		chain.Strip(h, &x.identity)
		for _, name := range keep {
			if lines, ok := h[name]; ok {
				named[name] = lines
			}
		}
		chain.Strip(h, &authn.Identity{}) // also credentials that are forwarded otherwise
	}
	for _, name := range keep {
		if lines, ok := h[name]; ok {
			named[name] = lines
		}
	}
	for _, name := range credentials {
		delete(h, name)
	}
	delete(h, queue.AttemptHeader) // set by the queue
	for name, lines := range named {
		h[name] = lines
	}
	return h
}

// withheld returns the names of headers that are not stored, or stored with other values than received.
func withheld(received, stored http.Header) []string {
	var names []string
	for name, lines := range received {
		if !slices.Equal(lines, stored[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// accepted writes the response to a queued request.
func accepted(w http.ResponseWriter, id string, after time.Duration) {
	at := queue.StatusPath(id)
	body, _ := json.Marshal(struct {
		ID     string `json:"id"`
		State  string `json:"state"`
		Status string `json:"status_url"`
	}{id, queue.Queued.String(), at})
	h := w.Header()
	h.Set("Location", at)
	h.Set("Retry-After", strconv.FormatInt(max(1, quota.CeilSeconds(after)), 10))
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(body, '\n'))
}
