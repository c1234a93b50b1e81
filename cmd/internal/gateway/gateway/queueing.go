package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/buffers"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
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
			status: http.StatusTooManyRequests, retryAfter: max(k.RetryAfter, time.Second),
			detail: "Too many requests; a stream cannot be kept for later.",
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
			status: http.StatusTooManyRequests, retryAfter: max(k.RetryAfter, 5*time.Second),
			detail: "Too many of your requests are waiting; nothing was accepted.",
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
	x.Queued, x.Rule = true, k.Rule
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

// Run delivers queued requests until the context ends, and waits for the workers that it has started.
func (g *Gateway) Run(ctx context.Context) {
	if g.cfg.Queue == nil {
		return
	}
	var workers sync.WaitGroup
	for range cmp.Or(g.cfg.Workers, 16) {
		workers.Go(func() { g.work(ctx) })
	}
	workers.Wait()
}

func (g *Gateway) work(ctx context.Context) {
	for {
		d, err := g.cfg.Queue.Next(ctx)
		if err != nil {
			return
		}
		out := g.deliver(d.Context(), d.Item(), d.Begin)
		if out.later > 0 {
			d.Later(out.later)
		} else {
			d.Done(out.Outcome)
		}
	}
}

// deliver sends a request that was queued through the limits of today to its upstream. It begins when they have let it
// pass.
func (g *Gateway) deliver(ctx context.Context, it *queue.Item, begin func() error) (out deliveryResult) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, bounds.Counted{}, true)) // when it was queued
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			out = deliveryResult{Outcome: queue.Outcome{Err: errors.New("the answer broke off")}}
			if p != http.ErrAbortHandler { //nolint:errorlint // a panic's value
				g.log.Error("delivering a kept request went wrong", "id", it.ID, "panic", fmt.Sprint(p))
				out.Err = errors.New("the gateway failed")
			}
		}
	}()
	d := &delivery{begin: begin}
	r, err := request(ctx, it)
	if err != nil {
		return d.rejected(http.StatusBadRequest)
	}
	path, fault := readTarget(r)
	if fault != nil {
		return d.rejected(fault.status)
	}
	x := &RequestContext{Start: time.Now(), Request: r, ID: r.Header.Get(RequestID), Path: path, delivery: d}
	x.identityForRules = admission.Identity{Claims: it.Claims, Attributes: it.Attributes}
	x.try = admission.Try{Retried: true, Stored: stored(it)}
	x.response.ResponseWriter = &d.recorder
	if set := g.cfg.Rules(); set != nil {
		clients := g.clientsFor(set)
		x.set, x.trusted, x.Client = set, clients.TrustsPeer(r), clients.Addr(r)
	}
	if x.Route = g.routes.find(r.Host, path); x.Route == nil {
		return d.rejected(http.StatusNotFound)
	}
	r = x.attach(r)
	defer func() { x.timeout.end() }()
	g.afterAuth.ServeHTTP(&x.response, r)
	return d.result(x)
}

// deliveryResult is the outcome of a delivery, or that its limits have no room yet.
type deliveryResult struct {
	queue.Outcome
	later time.Duration // 0: there was room
}

// request is the request of a queue item.
func request(ctx context.Context, it *queue.Item) (*http.Request, error) {
	u, err := url.ParseRequestURI(it.Target)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method: it.Method, URL: u, Host: it.Host, RequestURI: it.Target, RemoteAddr: it.RemoteAddr, Header: it.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, ContentLength: int64(len(it.Body)),
	}
	if len(it.Body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(it.Body))
	}
	if it.Scheme == "https" {
		r.TLS = new(tls.ConnectionState)
	}
	return r.WithContext(ctx), nil
}

// stored tells rules which headers of the request were not written down; nil if all were.
func stored(it *queue.Item) *rules.Queued {
	if len(it.Withheld) == 0 {
		return nil
	}
	q := &rules.Queued{Withheld: it.Withheld}
	for _, c := range it.Charges {
		q.Charges = append(q.Charges, rules.Charge(c))
	}
	return q
}

// delivery is an attempt to deliver a queued request.
type delivery struct {
	recorder  recorder
	begin     func() error
	started   bool
	claimLost error // another gateway has it, or it was cancelled
	denied    *deliveryResult
}

// claim reports whether the request may be sent.
func (d *delivery) claim() bool {
	d.claimLost = d.begin()
	d.started = d.claimLost == nil
	return d.started
}

// deny notes that there is no room for the request yet, or never will be.
func (d *delivery) deny(a *admission.Admission) {
	d.denied = &deliveryResult{later: max(a.RetryAfter, time.Millisecond)}
	if a.ExceedsLimit {
		d.denied = &deliveryResult{Outcome: queue.Outcome{Err: errors.New("it costs more than its limit ever allows at once")}}
	}
}

// rejected ends a request that can be sent nowhere any more.
func (d *delivery) rejected(status int) deliveryResult {
	if err := d.begin(); err != nil {
		return deliveryResult{}
	}
	return deliveryResult{Outcome: queue.Outcome{Status: status}}
}

// defaultRedelivery is after how long an item is tried again whose denial had no Retry-After.
const defaultRedelivery = time.Second

// result is the outcome. A request that was shed or denied before anything was sent is no attempt.
func (d *delivery) result(x *RequestContext) deliveryResult {
	status := x.response.status
	switch {
	case d.denied != nil:
		return *d.denied
	case d.claimLost != nil:
		return deliveryResult{}
	case !d.started && (status == 0 || status == statusClientClosed || status == http.StatusTooManyRequests || status >= 500):
		return deliveryResult{later: defaultRedelivery}
	case !d.started:
		return d.rejected(status)
	case status == 0 || status == statusClientClosed:
		return deliveryResult{Outcome: queue.Outcome{Err: errors.New("there was no answer in time")}}
	}
	h, body := d.recorder.Header(), d.recorder.body
	if n := len(body); n > 0 && n <= queue.MaxResult && len(h["Content-Length"]) == 0 { // net/http would say it
		h["Content-Length"] = []string{strconv.Itoa(n)}
	}
	return deliveryResult{Outcome: queue.Outcome{Status: status, Header: h, Body: body}}
}
