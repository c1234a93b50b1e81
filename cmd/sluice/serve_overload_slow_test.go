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

// slowRequests are requests of one client that neither sends bodies nor reads responses.
type slowRequests struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	ended  atomic.Int64 // requests that ended before cancel
}

// startSlow starts requests: downloads that are not read, or uploads that stop after one byte.
func startSlow(t *testing.T, client *http.Client, url string, n int, length int64) *slowRequests {
	ctx, cancel := context.WithCancel(t.Context())
	s := &slowRequests{cancel: cancel}
	for range n {
		s.done.Go(func() {
			for s.send(ctx, t, client, url, length) == http.StatusServiceUnavailable && ctx.Err() == nil { // retry, because all are sent at once
			}
		})
	}
	return s
}

// send sends one request and returns its status, or 0 without a response. After a 200 it waits until ctx is done.
func (s *slowRequests) send(ctx context.Context, t *testing.T, client *http.Client, url string, length int64) int {
	var body io.Reader
	method := http.MethodGet
	if length > 0 {
		pipe, in := io.Pipe()
		defer context.AfterFunc(ctx, func() { in.Close() })() // because the transport does not release a body that it reads
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

// Slow clients do not fill an adaptive limit while the upstream is idle: neither with unread downloads nor with unsent uploads, over
// HTTP/1 and HTTP/2. Other clients are served.
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
		// Priority critical, because random shedding and CPU pressure on a busy test machine do not affect it.
		"priorities: [{match: {path: /**}, priority: critical}]\nload_shedding: [{name: api, concurrency: {min: 1, max: 90}}]\n", "")
	metric := func(name string) int64 {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\d+)$`).FindStringSubmatch(curl(t, "http://"+p.admin+"/metrics"))
		if m == nil {
			t.Fatalf("no metric %s", name)
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
				until("the slow requests do not arrive", func() bool { return metric("sluice_gateway_in_flight_requests")+s.ended.Load() >= slow })
				until("the upstream does not become idle", func() bool { return metric(`sluice_adaptive_limit_in_flight{limit="api"}`) == 0 || s.ended.Load() > 0 })
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
				if t.Logf("%d of %d served with %d slow requests", served, honest, slow-s.ended.Load()); served < honest*99/100 || s.ended.Load() > 0 {
					t.Errorf("%d of %d are served with %d slow requests, of which %d were shed", served, honest, slow, s.ended.Load())
				}
			})
			until("slow requests do not leave", func() bool { return metric("sluice_gateway_in_flight_requests") == 0 })
		}
	}
}
