package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowRequests are requests of one address whose client neither sends nor reads.
type slowRequests struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	ended  atomic.Int64 // before cancel
}

// startSlow sends requests: downloads that are not read, or uploads of which one byte is sent.
func startSlow(t *testing.T, client *http.Client, url string, n int, length int64) *slowRequests {
	ctx, cancel := context.WithCancel(t.Context())
	s := &slowRequests{cancel: cancel}
	for range n {
		s.done.Go(func() {
			for s.send(ctx, t, client, url, length) == http.StatusServiceUnavailable && ctx.Err() == nil { // all come at once
			}
		})
	}
	return s
}

// send sends one request and returns the status of its response, if that is not what a slow client gets.
func (s *slowRequests) send(ctx context.Context, t *testing.T, client *http.Client, url string, length int64) int {
	var body io.Reader
	method := http.MethodGet
	if length > 0 {
		pipe, in := io.Pipe()
		defer context.AfterFunc(ctx, func() { in.Close() })() // the transport does not let go of a body that it reads
		s.done.Go(func() { _, _ = in.Write([]byte("x")) })
		body, method = pipe, http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Error(err)
		return 0
	}
	r.ContentLength = length
	resp, err := client.Do(r)
	if err != nil {
		s.ended.Add(1)
		return 0
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		<-ctx.Done()
	}
	return resp.StatusCode
}

// While an upstream idles because clients are slow, others are served: neither downloads that are not read nor uploads that
// are not sent fill an adaptive limit, by either protocol.
func TestGatewayShedSlowClients(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/download":
			for chunk := make([]byte, 32<<10); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		case "/upload":
			_, _ = io.Copy(io.Discard, r.Body)
		}
		fmt.Fprintln(w, "served")
	}))
	t.Cleanup(api.Close)
	p, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /**, upstream: api}]}", api.URL),
		// Critical, so that neither chance nor a busy test machine (process pressure) sheds any.
		"priorities: [{match: {path: /**}, priority: critical}]\nshed: [{name: api, in_flight: {min: 1, max: 90}}]\n", "")
	metric := func(name string) int64 {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\d+)$`).FindStringSubmatch(curl(t, "http://"+p.admin+"/metrics"))
		if m == nil {
			t.Fatalf("there is no metric %s", name)
		}
		n, _ := strconv.ParseInt(m[1], 10, 64)
		return n
	}
	const slow, honest = 90, 100
	until := func(what string, ok func() bool) {
		for end := time.Now().Add(20 * time.Second); !ok(); {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	for _, proto := range []string{"h1", "h2"} {
		for kind, length := range map[string]int64{"download": 0, "upload": 1 << 20, "small upload": 100} {
			t.Run(proto+" "+kind, func(t *testing.T) {
				tr := &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
				tr.Protocols.SetHTTP1(proto == "h1")
				tr.Protocols.SetUnencryptedHTTP2(proto == "h2")
				defer tr.CloseIdleConnections()
				path := strings.TrimPrefix(kind, "small ")
				s := startSlow(t, &http.Client{Transport: tr}, "http://"+address+"/"+path, slow, length)
				defer s.done.Wait()
				defer s.cancel()
				until("the slow requests do not come", func() bool { return metric("sluice_gateway_in_flight")+s.ended.Load() >= slow })
				until("the upstream does not idle", func() bool { return metric(`sluice_gate_in_flight{gate="api"}`) == 0 || s.ended.Load() > 0 })
				served := 0
				for range honest {
					resp, err := http.Get("http://" + address + "/")
					if err != nil {
						t.Fatal(err)
					}
					if resp.Body.Close(); resp.StatusCode == http.StatusOK {
						served++
					}
				}
				if t.Logf("%d of %d served beside %d", served, honest, slow-s.ended.Load()); served < honest*99/100 || s.ended.Load() > 0 {
					t.Errorf("%d of %d are served beside %d slow requests, of which %d were turned away", served, honest, slow, s.ended.Load())
				}
			})
			until("slow requests do not leave", func() bool { return metric("sluice_gateway_in_flight") == 0 })
		}
	}
}
