package main

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
)

// Of concurrent guesses at the gateway or the admin API, only as many are checked as the limit allows. A login from another
// address succeeds at the same time.
func TestParallelGuessesThroughGateway(t *testing.T) {
	d := t.TempDir()
	key, hash := authn.NewKey()
	write(t, filepath.Join(d, "keys.yaml"), "keys:\n- {user: ada, hash: '"+hash+"'}\n")
	password, err := authn.HashPassword("correct horse", 10)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d, "users.yaml"), "users:\n- {user: joe, hash: '"+password+"'}\n")
	token := filepath.Join(d, "token")
	write(t, token, "0123456789abcdef0123456789abcdef\n")
	api := tellsHeaders(t)
	p, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /**, upstream: api, authentication: [api_keys, basic]}]}", api.URL), "rules: []",
		fmt.Sprintf("authentication: {api_keys: {files: %q}, basic: {files: %q}, failed_attempts: 5/h}\n'admin': {token_file: %q}", filepath.Join(d, "keys.yaml"), filepath.Join(d, "users.yaml"), token))
	client := func(from string, conns int) *http.Client {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		tr := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 120, MaxConnsPerHost: conns}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	var mu sync.Mutex
	ask := func(c *http.Client, url string, statuses map[int]int, set func(*http.Request)) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		set(r)
		resp, err := c.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		mu.Lock()
		defer mu.Unlock()
		statuses[resp.StatusCode]++
	}
	guesses := func(from, url string, conns, most int, set func(r *http.Request, i int)) {
		t.Helper()
		var all sync.WaitGroup
		statuses, other := map[int]int{}, map[int]int{}
		c := client(from, conns)
		for i := range 120 {
			all.Go(func() { ask(c, url, statuses, func(r *http.Request) { set(r, i) }) })
		}
		all.Go(func() {
			ask(client("127.0.0.9", 1), "http://"+address+"/", other, func(r *http.Request) { r.Header.Set("X-Api-Key", key) })
		})
		all.Wait()
		if statuses[200] > 0 || statuses[401] > most || statuses[401] == 0 || other[200] != 1 {
			t.Errorf("%s from %s: %v, want at most %d of 401; from the other address %v", url, from, statuses, most, other)
		}
		t.Logf("%s from %s: %v", url, from, statuses)
	}
	guesses("127.0.0.2", "http://"+address+"/", 120, 5, func(r *http.Request, i int) { r.Header.Set("X-Api-Key", fmt.Sprint("guess-", i)) })
	guesses("127.0.0.3", "http://"+address+"/", 120, 5, func(r *http.Request, i int) { r.SetBasicAuth("joe", fmt.Sprint("guess-", i)) })
	guesses("127.0.0.4", "http://"+p.admin+"/v1/status", 10, 10, func(r *http.Request, i int) { r.Header.Set("Authorization", fmt.Sprint("Bearer guess-", i)) })
}
