package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// yard is a gateway under attack, with an upstream that records all requests byte by byte.
type yard struct {
	process gatewayProcess
	address string
	app     *scribe
	left    int64 // remaining quota of the rule everything at the last call of counted
}

// The first rule counts all requests that may be forwarded. Its limit is never reached.
const yardRules = `
rules:
  - {name: everything, match: {path: {not: [/probe, /last]}}, limit: {rate: 100000000/month, algorithm: fixed_window}}
  - {name: probe, match: {path: [/probe]}, limit: {rate: 100000000/month, algorithm: fixed_window}}
  - {name: flood, match: {path: /flood}, per: header:X-Api-Key, limit: {rate: 20/month, algorithm: fixed_window}}
  - {name: session, match: {path: /session}, per: "cookie:sess", limit: {rate: 3/month, algorithm: fixed_window}}
  - {name: user, match: {path: /user}, per: "query:user_id", limit: {rate: 3/month, algorithm: fixed_window}}
  - {name: address, match: {path: /address}, per: ip, limit: {rate: 5/month, algorithm: fixed_window}}
  - {name: posts, match: {path: /posts}, limit: {rate: 100000000/month, algorithm: fixed_window}}
`

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{app: newScribe(t)}
	y.process, y.address = startGatewayOn(t, "{address: '127.0.0.1:0'}", fmt.Sprintf(`
  upstreams: {app: {servers: 'http://%s', retries: 0, outlier_detection: {consecutive_failures: 1000000}, timeouts: {response_header: 5s}}}
  routes: [{upstream: app, max_body_size: 100KiB}]`, y.app.address), yardRules, "metrics: {http_listener: true}")
	return y
}

// scribe is an upstream with a strict HTTP/1 parser, which records requests and everything that is not a request.
type scribe struct {
	address string
	evil    map[string]string // raw responses by target

	mu   sync.Mutex // guards the following
	seen []string   // requests, head and body
	odd  []string   // bytes that are not a request
}

// largeAnswer is the size of a response that exceeds all buffers between upstream and client.
const largeAnswer = 32 << 20

func newScribe(t *testing.T) *scribe {
	t.Helper()
	r := &scribe{evil: attacks.Responses()}
	r.evil["/large"] = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", largeAnswer, strings.Repeat("x", largeAnswer))
	r.address = tcptest.Serve(t, r.serve)
	return r
}

func (r *scribe) serve(conn net.Conn) {
	for in := bufio.NewReader(conn); ; {
		head, body, err := readRequest(in)
		if err != nil && len(head) > 0 && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			r.note(&r.odd, fmt.Sprintf("%q: %v", head, err))
		}
		if err != nil {
			return
		}
		line, _, _ := strings.Cut(head, "\r\n")
		target := strings.Split(line, " ")[1]
		r.note(&r.seen, head+body)
		if answer, ok := r.evil[target]; ok {
			_, _ = io.WriteString(conn, answer)
			if strings.Contains(answer, "close") {
				return
			}
			continue
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nApp-Saw: %s\r\n\r\n%s", len(target), strings.TrimSuffix(line, " HTTP/1.1"), target); err != nil {
			return
		}
	}
}

func (r *scribe) note(list *[]string, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, text)
}

// taken returns the requests since the last call.
func (r *scribe) taken() (seen, odd []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if !strings.HasPrefix(s, "GET /last ") {
			seen = append(seen, s)
		}
	}
	odd = r.odd
	r.seen, r.odd = nil, nil
	return seen, odd
}

// readRequest reads a request that all parsers understand alike: with one length or chunked, and without a bare line break.
func readRequest(in *bufio.Reader) (head, body string, err error) {
	length, chunked := -1, false
	for {
		line, err := in.ReadString('\n')
		head += line
		if err != nil {
			return head, "", err
		}
		text, ok := strings.CutSuffix(line, "\r\n")
		name, value, colon := strings.Cut(text, ":")
		switch {
		case !ok || strings.ContainsAny(text, "\r\x00"):
			return head, "", fmt.Errorf("line %q", line)
		case text == "":
			if chunked && length >= 0 {
				return head, "", fmt.Errorf("both a length and chunks")
			}
			body, err := readBody(in, length, chunked)
			return head, body, err
		case strings.Count(head, "\r\n") == 1:
			if parts := strings.Split(text, " "); len(parts) != 3 || parts[2] != "HTTP/1.1" {
				return head, "", fmt.Errorf("first line %q", text)
			}
		case !colon || strings.ContainsAny(name, " \t_"):
			return head, "", fmt.Errorf("field %q", text)
		case strings.EqualFold(name, "Content-Length"):
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil || strings.Count(strings.ToLower(head), "\ncontent-length:") > 1 {
				return head, "", fmt.Errorf("field %q", text)
			}
		case strings.EqualFold(name, "Transfer-Encoding"):
			if chunked = value == " chunked"; !chunked {
				return head, "", fmt.Errorf("field %q", text)
			}
		}
	}
}

func readBody(in *bufio.Reader, length int, chunked bool) (string, error) {
	if !chunked {
		b := make([]byte, max(0, length))
		_, err := io.ReadFull(in, b)
		return string(b), err
	}
	b, err := io.ReadAll(httputil.NewChunkedReader(in))
	for err == nil { // trailers
		var line string
		if line, err = in.ReadString('\n'); line == "\r\n" {
			break
		}
		b = append(b, line...)
	}
	return string(b), err
}

// say sends bytes on a new connection, and returns everything that the gateway sends until it closes the connection.
func (y *yard) say(t *testing.T, text string) string {
	t.Helper()
	return y.sayFrom(t, "127.0.0.1", text)
}

func (y *yard) sayFrom(t *testing.T, from, text string) string {
	t.Helper()
	got, err := attacks.Say(t.Context(), attacks.Target{Address: y.address, From: from}, text)
	if err != nil {
		t.Errorf("%.300q: %v: %.300q", text, err, got)
	}
	return got
}

// sayHalf sends an incomplete request and closes the connection.
func (y *yard) sayHalf(t *testing.T, text string) string {
	t.Helper()
	got, err := attacks.SayHalf(t.Context(), attacks.Target{Address: y.address, From: "127.0.0.1"}, text)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// counted returns the number of requests charged to the rule everything since the last call.
func (y *yard) counted(t *testing.T) int64 {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(y.say(t, "GET /look HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	left, err := strconv.ParseInt(resp.Header.Get("X-Ratelimit-Remaining"), 10, 64)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	n := y.left - left - 1
	y.left = left
	return n
}

// beside is a well-behaved client that sends requests during an attack.
type beside struct {
	stop   context.CancelFunc
	ended  sync.WaitGroup
	asked  atomic.Int64
	failed atomic.Int64
	steps  chan struct{} // one for each request, if more is waiting
}

func (y *yard) beside(t *testing.T) *beside {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b := &beside{stop: cancel, steps: make(chan struct{})}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	for range 2 {
		b.ended.Go(func() {
			for ctx.Err() == nil {
				select {
				case b.steps <- struct{}{}:
				default:
				}
				req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+y.address+"/probe", nil)
				if err != nil {
					panic(err)
				}
				b.asked.Add(1)
				resp, err := client.Do(req)
				if err != nil {
					b.failed.Add(1)
					continue
				}
				if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(text) != "/probe" {
					b.failed.Add(1)
				}
				resp.Body.Close()
			}
			client.CloseIdleConnections()
		})
	}
	return b
}

// more waits until n more requests were sent.
func (b *beside) more(n int64) {
	for until := b.asked.Load() + n; b.asked.Load() < until; {
		<-b.steps
	}
}

// served stops the client and fails the test if more than 1 % of its requests failed.
func (b *beside) served(t *testing.T) {
	t.Helper()
	b.stop()
	b.ended.Wait()
	if asked, failed := b.asked.Load(), b.failed.Load(); asked < 10 || failed*100 > asked {
		t.Errorf("of %d requests of a well-behaved client %d failed", asked, failed)
	}
}
