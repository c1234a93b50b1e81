package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// Run delivers queued requests until ctx is done, and waits for its workers.
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
			continue
		}
		state := d.Done(out.Outcome)
		if out.attempt != nil && g.cfg.OnAttempt != nil {
			out.attempt.Outcome = state.String()
			g.cfg.OnAttempt(out.attempt)
		}
	}
}

// Attempt is an attempt to deliver a queued request that the limits allowed and that this gateway had claimed.
type Attempt struct {
	*RequestContext
	Number   int // starts at 1
	Status   int // of the response; 0: no response, or a truncated one
	Duration time.Duration
	BytesIn  int64  // size of the request's body
	Outcome  string // state of the item afterwards: done, queued (to be retried), dead, or delivering (claimed by another gateway)
}

// deliver applies the current limits to a queued request and forwards it to its upstream. It calls begin, which claims the
// item, when the limits have allowed it.
func (g *Gateway) deliver(ctx context.Context, it *queue.Item, begin func() error) (out deliveryResult) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, bounds.Counted{}, true)) // already counted when it was queued
	defer cancel()
	d := &delivery{}
	x := &RequestContext{
		Start: time.Now(), Item: it.ID, Rule: it.Rule, ID: it.Header.Get(RequestID), Client: it.Client, delivery: d,
		Request: &http.Request{Method: it.Method, URL: new(url.URL), Host: it.Host, RequestURI: it.Target, Header: it.Header},
	}
	d.begin = func() error {
		err := begin()
		if err == nil {
			d.attempt = &Attempt{RequestContext: x, Number: it.Attempt, BytesIn: int64(len(it.Body))}
		}
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			out = deliveryResult{Outcome: queue.Outcome{Err: errors.New("response truncated")}}
			if p != http.ErrAbortHandler { //nolint:errorlint // a panic's value
				g.log.Error("queue delivery panicked", "queue_item", it.ID, "panic", fmt.Sprint(p))
				out.Err = errors.New("internal error of the gateway")
			}
		}
		if out.attempt = d.attempt; out.attempt != nil {
			out.attempt.Status, out.attempt.Duration = out.Status, time.Since(x.Start)
		}
	}()
	r, err := request(ctx, it)
	if err != nil {
		return d.rejected(http.StatusBadRequest)
	}
	path, fault := readTarget(r)
	if fault != nil {
		return d.rejected(fault.status)
	}
	x.Request, x.Path = r, path
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

// deliveryResult is the outcome of a delivery, or the time after which the limits may allow it.
type deliveryResult struct {
	queue.Outcome
	later   time.Duration // 0: not denied
	attempt *Attempt      // nil: no attempt was made
}

// request returns the request of a queue item.
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

// stored returns the headers of the request that were not stored, for the rules, or nil if all were stored.
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
	claimLost error // another gateway has claimed the item, or it was cancelled
	denied    *deliveryResult
	attempt   *Attempt // set when the item is claimed
}

// claim claims the item and reports whether the request may be sent.
func (d *delivery) claim() bool {
	d.claimLost = d.begin()
	d.started = d.claimLost == nil
	return d.started
}

// deny records a denial: the request is retried later, or fails if its cost exceeds the limit.
func (d *delivery) deny(a *admission.Admission) {
	d.denied = &deliveryResult{later: max(a.RetryAfter, time.Millisecond)}
	if a.ExceedsLimit {
		d.denied = &deliveryResult{Outcome: queue.Outcome{Err: errors.New("cost exceeds the limit")}}
	}
}

// rejected ends a request that can no longer be forwarded, with the status of the rejection.
func (d *delivery) rejected(status int) deliveryResult {
	if err := d.begin(); err != nil {
		return deliveryResult{}
	}
	return deliveryResult{Outcome: queue.Outcome{Status: status}}
}

// defaultRedelivery is the time until the next attempt after a denial without Retry-After.
const defaultRedelivery = time.Second

// result returns the outcome. A request that was shed or denied before it was forwarded does not count as an attempt.
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
		return deliveryResult{Outcome: queue.Outcome{Err: errors.New("no response in time")}}
	}
	h, body := d.recorder.Header(), d.recorder.body
	if n := len(body); n > 0 && n <= queue.MaxResult && len(h["Content-Length"]) == 0 { // net/http would set it
		h["Content-Length"] = []string{strconv.Itoa(n)}
	}
	return deliveryResult{Outcome: queue.Outcome{Status: status, Header: h, Body: body}}
}
