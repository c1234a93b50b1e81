package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// limitedFor is when a request that was turned away without a word about time is tried again.
const limitedFor = time.Second

// Deliver sends a request that was kept through the limits of today to its upstream. It is what the queue calls.
func (g *Gateway) Deliver(ctx context.Context, it *queue.Item, begin func() error) (out queue.Outcome) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, bounds.Counted{}, true)) // when it was queued
	defer cancel()
	d := &delivery{begin: begin}
	r, err := request(ctx, it)
	if err != nil {
		return d.refused(http.StatusBadRequest)
	}
	path, fault := readTarget(r)
	if fault != nil {
		return d.refused(fault.status)
	}
	x := &Exchange{Began: time.Now(), Request: r, ID: r.Header.Get(RequestID), Path: path, delivery: d}
	x.who = admission.Identity{Claims: it.Claims, Attributes: it.Attributes}
	x.try = admission.Try{Retried: true, Stored: stored(it)}
	x.answer.ResponseWriter = &d.recorder
	if set := g.cfg.Rules(); set != nil {
		clients := g.clientsFor(set)
		x.set, x.trusted, x.Client = set, clients.TrustsPeer(r), clients.Addr(r)
	}
	if x.Route = g.routes.find(r.Host, path); x.Route == nil {
		return d.refused(http.StatusNotFound)
	}
	r = x.attach(r)
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // a panic's value
				panic(p)
			}
			out = queue.Outcome{Err: errors.New("the answer broke off")}
		}
		x.timeout.end()
	}()
	g.inside.ServeHTTP(&x.answer, r)
	return d.outcome(x)
}

// request is the request that was kept.
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

// delivery is what is known of a kept request that is tried.
type delivery struct {
	recorder recorder
	begin    func() error
	begun    bool
	lost     error // somebody else does it, or it was cancelled
	denied   *queue.Outcome
}

// deny notes that there is no room for the request yet, or never will be.
func (d *delivery) deny(a *admission.Admission) {
	d.denied = &queue.Outcome{Limited: true, After: max(a.RetryAfter, time.Millisecond)}
	if a.ExceedsLimit {
		d.denied = &queue.Outcome{Err: errors.New("it costs more than its limit ever allows at once")}
	}
}

// starts tells whether the request may be sent.
func (d *delivery) starts() bool {
	d.lost = d.begin()
	d.begun = d.lost == nil
	return d.begun
}

// refused is the end of a request that can be sent nowhere any more.
func (d *delivery) refused(status int) queue.Outcome {
	if err := d.begin(); err != nil {
		return queue.Outcome{}
	}
	return queue.Outcome{Status: status}
}

// outcome is what came of it. What was turned away before anything was sent is no attempt.
func (d *delivery) outcome(x *Exchange) queue.Outcome {
	status := x.answer.status
	switch {
	case d.denied != nil:
		return *d.denied
	case d.lost != nil:
		return queue.Outcome{}
	case !d.begun && (status == 0 || status == statusGone || status == http.StatusTooManyRequests || status >= 500):
		return queue.Outcome{Limited: true, After: limitedFor}
	case !d.begun:
		return d.refused(status)
	case status == 0 || status == statusGone:
		return queue.Outcome{Err: errors.New("there was no answer in time")}
	}
	h, body := d.recorder.Header(), d.recorder.body
	if n := len(body); n > 0 && n <= queue.MaxResult && len(h["Content-Length"]) == 0 { // net/http would say it
		h["Content-Length"] = []string{strconv.Itoa(n)}
	}
	return queue.Outcome{Status: status, Header: h, Body: body}
}

// statusGone is what a group answers when the request's context has ended.
const statusGone = 499

// recorder is a response writer that keeps the beginning of an answer.
type recorder struct {
	header http.Header
	body   []byte
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = make(http.Header)
	}
	return r.header
}

func (r *recorder) WriteHeader(int) {}

// Write keeps one byte more than is kept of a result, so that it is known that there was more.
func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b[:min(len(b), queue.MaxResult+1-len(r.body))]...)
	return len(b), nil
}
