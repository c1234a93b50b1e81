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
			continue
		}
		state := d.Done(out.Outcome)
		if out.attempt != nil && g.cfg.OnAttempt != nil {
			out.attempt.Outcome = state.String()
			g.cfg.OnAttempt(out.attempt)
		}
	}
}

// Attempt is an attempt to deliver a queued request: one that the limits had room for and that was this gateway's to make.
type Attempt struct {
	*RequestContext
	Number   int // 1 is the first
	Status   int // of the response; 0: there was none, or not all of it
	Duration time.Duration
	BytesIn  int64  // size of the request's body
	Outcome  string // state of the item after it: done, queued (to be tried again), dead, or delivering (another gateway has it)
}

// deliver sends a request that was queued through the limits of today to its upstream. It begins when they have let it
// pass.
func (g *Gateway) deliver(ctx context.Context, it *queue.Item, begin func() error) (out deliveryResult) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, bounds.Counted{}, true)) // when it was queued
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
			out = deliveryResult{Outcome: queue.Outcome{Err: errors.New("the answer broke off")}}
			if p != http.ErrAbortHandler { //nolint:errorlint // a panic's value
				g.log.Error("delivering a kept request went wrong", "id", it.ID, "panic", fmt.Sprint(p))
				out.Err = errors.New("the gateway failed")
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

// deliveryResult is the outcome of a delivery, or that its limits have no room yet.
type deliveryResult struct {
	queue.Outcome
	later   time.Duration // 0: there was room
	attempt *Attempt      // nil: there was none
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
	attempt   *Attempt // from when it is begun
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
