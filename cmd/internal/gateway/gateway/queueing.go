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

// Queue stores requests, and hands out those that are due.
type Queue interface {
	Enqueuer
	// Next waits until something is due. It fails when the context ends.
	Next(ctx context.Context) (*queue.Delivery, error)
}

// Enqueuer stores requests that are delivered later.
type Enqueuer interface {
	Put(ctx context.Context, it queue.Item) (id string, err error)
	// HasPending reports whether earlier requests of the key are still queued, under a rule that delivers them in order.
	HasPending(rule, key string) bool
	// MaxItem returns the maximum size of an item with its headers, in bytes.
	MaxItem() int
}

const (
	// enqueueReadTimeout is how long a client may take to send a request that is queued: all of it is read before the response.
	enqueueReadTimeout = 60 * time.Second
	// enqueueCopies is how many copies of a body there are while the queue stores it: encoded, sealed and sent.
	enqueueCopies = 3
)

// credentials are headers that are not written down unless the rule says so.
var credentials = match.CredentialHeaders()

// enqueue answers a denied request whose rule queues it: 202 when it is stored, and never before.
func (g *Gateway) enqueue(w http.ResponseWriter, r *http.Request, x *RequestContext, k *admission.QueueTarget) {
	if fault := g.tryEnqueue(w, r, x, k); fault != nil {
		fault.writeTo(w, r)
	}
}

func (g *Gateway) tryEnqueue(w http.ResponseWriter, r *http.Request, x *RequestContext, k *admission.QueueTarget) *rejection {
	if isServerWide(r) || len(r.Header["Upgrade"]) > 0 || strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return &rejection{
			status: http.StatusTooManyRequests, retryAfter: max(k.RetryAfter, time.Second), rule: k.Rule, denied: k.Denied,
			detail: "Too many requests, and a stream cannot be kept for later.",
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
			detail: "Too many of your requests are waiting, and nothing was accepted.",
		}
	case errors.Is(err, queue.ErrFull):
		return &rejection{
			status: http.StatusServiceUnavailable, retryAfter: max(k.RetryAfter, 5*time.Second),
			detail: "Too many requests are waiting; nothing was accepted.",
		}
	case err != nil && clientClosed(r):
		return reject(statusClientClosed, "")
	case err != nil:
		g.log.Error("a request could not be kept", "id", x.ID, "error", err)
		return &rejection{
			status: http.StatusServiceUnavailable, retryAfter: 5 * time.Second,
			detail: "Requests cannot be kept at the moment; nothing was accepted for sure.",
		}
	}
	x.Queued, x.Rule, x.Item = true, k.Rule, id
	accepted(w, id, k.RetryAfter)
	return nil
}

// readAll reads a body that is to be queued, of at most so many bytes, and reserves memory for its copies. A body that says
// that it is larger is not read at all.
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
			detail: "Too many request bodies are being received; nothing was accepted.",
		}
	case errors.As(err, new(*http.MaxBytesError)):
		return reject(http.StatusRequestEntityTooLarge, "The request's body is larger than is accepted here.")
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
	return reject(http.StatusRequestEntityTooLarge, "The request is larger than can be kept for later.")
}

// storedHeader is the header that is stored: as it would be forwarded, without credentials that the rule does not name.
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
		chain.Strip(h, &authn.Identity{}) // also those that are forwarded otherwise
	}
	for _, name := range keep {
		if lines, ok := h[name]; ok {
			named[name] = lines
		}
	}
	for _, name := range credentials {
		delete(h, name)
	}
	delete(h, queue.AttemptHeader) // which the queue sets
	for name, lines := range named {
		h[name] = lines
	}
	return h
}

// withheld lists the headers that are not stored, or not as they came.
func withheld(came, kept http.Header) []string {
	var names []string
	for name, lines := range came {
		if !slices.Equal(lines, kept[name]) {
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

// accepted is the response to a request that is stored.
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
