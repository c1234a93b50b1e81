package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

// dialer returns a dial function that connects from the given local address.
func dialer(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext
}

// client returns an HTTP/1 or HTTP/2 client with the given local address. The same arguments return the same client.
func (s *soak) client(t *testing.T, from string, h2 bool) *http.Client {
	tr := &http.Transport{
		DialContext: dialer(from), TLSClientConfig: &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: 20, Protocols: new(http.Protocols),
	}
	if h2 {
		tr.Protocols.SetHTTP2(true)
		tr.Protocols.SetUnencryptedHTTP2(true)
	} else {
		tr.Protocols.SetHTTP1(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	s.clients = append(s.clients, &http.Client{Transport: tr})
	return s.clients[len(s.clients)-1]
}

func (s *soak) base(g *soakGateway) string {
	if g == s.tls {
		return "https://" + g.address
	}
	return "http://" + g.address
}

// nonce returns a unique text for a request.
func nonce() string { return fmt.Sprintf("honest-%016x", rand.Uint64()) }

var soakNonce = regexp.MustCompile(`honest-[0-9a-f]{16}`)

// foreign returns errWrong if a response contains the nonce of another request.
func foreign(response, own string) error {
	for _, n := range soakNonce.FindAllString(response, -1) {
		if n != own {
			return fmt.Errorf("%w: %s", errWrong, n)
		}
	}
	return nil
}

// askOwn sends one request of a well-behaved client and checks that the response belongs to it.
func askOwn(ctx context.Context, client *http.Client, method, url, own string, body string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	if body == "" {
		req.Body = nil
	}
	req.Header.Set("X-Nonce", own)
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, "", err
	}
	text := string(b)
	return resp, text, foreign(fmt.Sprint(resp.Header)+text, own)
}

// honest returns the traffic of a well-behaved HTTP client at the given rate.
func (s *soak) honest(t *testing.T, kind string, rate float64, g *soakGateway, net byte, h2 bool, paths ...string) *offer {
	var clients []*http.Client
	for i := range 4 {
		clients = append(clients, s.client(t, fmt.Sprintf("127.0.%d.%d", net, 10+i), h2))
	}
	return &offer{kind: kind, rate: rate, honest: true, do: func(ctx context.Context, n int) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		own, path, method, body := nonce(), paths[n%len(paths)], http.MethodGet, ""
		if n%3 == 0 {
			method, body = http.MethodPost, own+strings.Repeat("b", rand.IntN(4000))
		}
		target := path + own
		resp, text, err := askOwn(ctx, clients[n%len(clients)], method, s.base(g)+target, own, body)
		want := own + " " + target + " " + body
		if strings.Contains(path, "/tokens/") {
			want = fmt.Sprintf(`{"nonce": %q, "usage": {"total_tokens": 7}}`, own)
		}
		switch {
		case err != nil:
			return err
		case resp.StatusCode != http.StatusOK:
			return fmt.Errorf("%s %s: %s", path, resp.Status, resp.Header.Get("Content-Type"))
		case text != want || resp.Header.Get("X-Nonce") != own:
			return fmt.Errorf("%w: %.100q instead of %.100q", errWrong, text, want)
		}
		return nil
	}}
}

// sockets opens WebSockets and checks the echo of each message.
func (s *soak) sockets(kind string, rate float64, g *soakGateway) *offer {
	return &offer{kind: kind, rate: rate, honest: true, do: func(ctx context.Context, n int) error {
		to := attacks.Target{Address: g.address, From: fmt.Sprintf("127.0.5.%d", 10+n%4)}
		if g == s.tls {
			to.TLS = &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err := to.Dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		config, err := websocket.NewConfig("ws://localhost/socket/x", "http://localhost")
		if err != nil {
			return err
		}
		c, err := websocket.NewClient(config, conn)
		if err != nil {
			return err
		}
		for range 3 {
			own, got := nonce(), ""
			if err := websocket.Message.Send(c, own); err != nil {
				return err
			}
			if err := websocket.Message.Receive(c, &got); err != nil {
				return err
			}
			if got != own {
				return fmt.Errorf("%w: %.100q instead of %q", errWrong, got, own)
			}
		}
		return nil
	}}
}

// calls makes gRPC calls and checks the echo of messages and metadata.
func (s *soak) calls(t *testing.T, kind string, rate float64, g *soakGateway) *offer {
	trust := insecure.NewCredentials()
	if g == s.tls {
		trust = credentials.NewTLS(&tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
	}
	var conns []*grpc.ClientConn
	for i := range 4 {
		dial := dialer(fmt.Sprintf("127.0.6.%d", 10+i))
		conns = append(conns, connect(t, "passthrough:"+g.address, grpc.WithTransportCredentials(trust),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) })))
	}
	return &offer{kind: kind, rate: rate, honest: true, do: func(ctx context.Context, n int) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		own := nonce()
		stream, err := conns[n%len(conns)].NewStream(metadata.AppendToOutgoingContext(ctx, "x-said", own), &echoService.Streams[0], "/test.Echo/Talk", grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		for range 2 {
			got, err := sayOnce(stream, own)
			if err != nil {
				return err
			}
			if got != own {
				return fmt.Errorf("%w: %.100q instead of %q", errWrong, got, own)
			}
		}
		md, err := stream.Header()
		if err != nil {
			return err
		}
		return errors.Join(foreign(fmt.Sprint(md), own), stream.CloseSend(), func() error {
			if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF {
				return fmt.Errorf("the end: %v", err)
			}
			return nil
		}())
	}}
}

// jobs posts three requests at once, of which two exceed the limit and are queued, and waits for their results.
func (s *soak) jobs(t *testing.T, kind string, rate float64, g *soakGateway) *offer {
	var clients []*http.Client
	for i := range 4 {
		clients = append(clients, s.client(t, fmt.Sprintf("127.0.7.%d", 10+i), i%2 == 0))
	}
	return &offer{kind: kind, rate: rate, honest: true, do: func(ctx context.Context, n int) error {
		client := clients[n%len(clients)]
		results := make(chan error, 3)
		for range cap(results) {
			go func() { results <- s.job(ctx, client, s.base(g), fmt.Sprintf("client-%d", n%4)) }()
		}
		return errors.Join(<-results, <-results, <-results)
	}}
}

func (s *soak) job(ctx context.Context, client *http.Client, base, name string) error {
	own := nonce()
	path := "/jobs/" + own
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(own))
	if err != nil {
		return err
	}
	req.GetBody = nil
	req.Header.Set("X-Client", name)
	req.Header.Set("X-Nonce", own)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK && string(b) != own+" "+path+" "+own {
		return fmt.Errorf("%w: %.100q", errWrong, b)
	}
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("job: %s", resp.Status)
	}
	s.accepted.Store(path, base+resp.Header.Get("Location"))
	for ctx.Err() == nil {
		_, text, err := askOwn(ctx, client, http.MethodGet, base+resp.Header.Get("Location"), own, "")
		if err != nil {
			return err
		}
		if strings.Contains(text, `"state":"done"`) {
			if !strings.Contains(text, own) {
				return fmt.Errorf("%w: %.200q", errWrong, text)
			}
			return nil
		}
		lasting(ctx, 200*time.Millisecond)
	}
	return ctx.Err()
}

// traffic returns all kinds of traffic with their rates.
func (s *soak) traffic(t *testing.T) []*offer {
	t.Helper()
	loads := []*offer{
		s.honest(t, "HTTP/1", 25, s.plain, 1, false, "/h1/", "/h1/hints/", "/h1/leased/", "/h2/", "/h1/tokens/", "/h1/shed/"),
		s.honest(t, "HTTP/1 over TLS", 15, s.tls, 2, false, "/h1/", "/h1/hints/", "/h2/", "/h2/hints/", "/h2/eventual/"),
		s.honest(t, "HTTP/2 without TLS", 25, s.plain, 3, true, "/h1/", "/h1/hints/", "/h2/", "/h2/hints/", "/h2/eventual/"),
		s.honest(t, "HTTP/2", 25, s.tls, 4, true, "/h1/", "/h1/leased/", "/h2/", "/h2/hints/", "/h1/tokens/"),
		s.calls(t, "gRPC without TLS", 10, s.plain),
		s.calls(t, "gRPC", 10, s.tls),
		s.sockets("WebSocket", 5, s.plain),
		s.sockets("WebSocket over TLS", 3, s.tls),
		s.jobs(t, "queue (3 requests each)", 2, s.tls),
	}
	return append(loads, s.attacks(t)...)
}

// hostile returns an attack at the given rate, from separate addresses, on both gateways alternately.
func (s *soak) hostile(kind string, rate float64, do func(ctx context.Context, to attacks.Target, n int) error) *offer {
	return &offer{kind: kind, rate: rate, do: func(ctx context.Context, n int) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		to := attacks.Target{Address: s.plain.address, From: fmt.Sprintf("127.1.0.%d", 1+n%8), Path: "/flood", Scale: 0.01}
		if n%4 == 3 {
			to.Address = s.tls.address
			to.TLS = &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
		}
		return do(ctx, to, n)
	}}
}

// attacks returns the corpus of attacks, and clients that disconnect, are slow or request too much.
func (s *soak) attacks(t *testing.T) []*offer {
	t.Helper()
	requests := attacks.Requests("/flood")
	var evil []string
	for target, text := range attacks.Responses() {
		if len(text) < 1<<20 {
			evil = append(evil, target)
		}
	}
	evil = append(evil, "/evil/any", "/evil/any", "/evil/any", "/evil2/any", "/evil2/any", "/evil2/any", "/none/any")
	// say sends a text and checks that the response contains no data of other requests.
	say := func(ctx context.Context, to attacks.Target, text string) error {
		got, err := attacks.Say(ctx, to, text)
		if errors.Is(err, attacks.ErrNoEnd) {
			err = nil
		}
		return errors.Join(err, foreign(got, ""))
	}
	h1, h2 := s.client(t, "127.1.1.1", false), s.client(t, "127.1.1.2", true)
	h2TLS := func(to attacks.Target) attacks.Target {
		if to.TLS != nil {
			to.TLS.NextProtos = []string{"h2"}
		}
		return to
	}
	leave := func(ctx context.Context, to attacks.Target, n int, path string) error {
		client, g := []*http.Client{h1, h2}[n%2], s.plain
		if to.TLS != nil {
			g = s.tls
		}
		ctx, cancel := context.WithTimeout(ctx, rand.N(30*time.Millisecond))
		defer cancel()
		method, body := http.MethodGet, ""
		if n%3 == 0 {
			method, body = http.MethodPost, strings.Repeat("b", rand.IntN(100_000))
		}
		_, _, err := askOwn(ctx, client, method, s.base(g)+path, "", body)
		if errors.Is(err, errWrong) {
			return err
		}
		return nil
	}
	return []*offer{
		s.hostile("flood", 100, func(ctx context.Context, to attacks.Target, n int) error {
			client, g := []*http.Client{h1, h2}[n%2], s.plain
			if to.TLS != nil {
				g = s.tls
			}
			_, _, err := askOwn(ctx, client, http.MethodGet, s.base(g)+"/flood", "", "")
			return err
		}),
		s.hostile("corpus of requests", 20, func(ctx context.Context, to attacks.Target, _ int) error {
			return say(ctx, to, requests[rand.IntN(len(requests))])
		}),
		s.hostile("cut requests", 20, func(ctx context.Context, to attacks.Target, _ int) error {
			text := requests[rand.IntN(len(requests))]
			return attacks.Drop(ctx, to, text[:rand.IntN(len(text))])
		}),
		s.hostile("HTTP/2 floods", 2, func(ctx context.Context, to attacks.Target, n int) error {
			all := attacks.HTTP2()
			err := all[n%len(all)].Run(ctx, h2TLS(to))
			if err != nil {
				err = fmt.Errorf("%s: %w", all[n%len(all)].Name, err)
			}
			return err
		}),
		s.hostile("WebSocket floods", 1, func(ctx context.Context, to attacks.Target, n int) error {
			all := attacks.WebSocket()
			to.Path = "/socket/x"
			return all[n%len(all)].Run(ctx, to)
		}),
		s.hostile("hostile upstreams", 20, func(ctx context.Context, to attacks.Target, n int) error {
			return say(ctx, to, []string{"GET ", "HEAD ", "POST "}[n%3]+evil[rand.IntN(len(evil))]+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		}),
		s.hostile("aborts", 40, func(ctx context.Context, to attacks.Target, n int) error {
			return leave(ctx, to, n, []string{"/h1/hints/x", "/h2/hints/x", "/h2/large", "/h1/large", "/h1/tokens/x", "/h1/shed/x"}[rand.IntN(6)])
		}),
		s.hostile("aborts, hostile upstreams", 20, func(ctx context.Context, to attacks.Target, n int) error {
			return leave(ctx, to, n, evil[rand.IntN(len(evil))])
		}),
		s.hostile("slow readers", 2, func(ctx context.Context, to attacks.Target, n int) error {
			path := []string{"/h1/large", "/h2/large", "/h1/shed/large"}[n%3]
			c, err := attacks.Hold(ctx, to, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
			if err != nil {
				return err
			}
			lasting(ctx, 5*time.Second)
			return c.Close()
		}),
		s.hostile("slow readers of HTTP/2", 1, func(ctx context.Context, to attacks.Target, n int) error {
			to.Path = []string{"/h1/large", "/h2/large"}[n%2]
			to.Scale = 0.2
			return attacks.ClosedWindows(ctx, h2TLS(to))
		}),
		s.hostile("slow writers", 4, func(ctx context.Context, to attacks.Target, n int) error {
			all := append(attacks.Beginnings[:5:5], attacks.SlowBodies...)
			c, err := attacks.Hold(ctx, to, all[n%len(all)])
			if err != nil {
				return err
			}
			lasting(ctx, 5*time.Second)
			return c.Close()
		}),
		s.hostile("queue, NATS stopped", 5, func(ctx context.Context, to attacks.Target, n int) error {
			own := nonce()
			size := rand.IntN(10_000)
			if n%10 == 0 {
				size = 1 << rand.IntN(22)
			}
			path := "/jobs/" + own
			resp, text, err := askOwn(ctx, h1, http.MethodPost, s.base(s.plain)+path, own, strings.Repeat("q", size))
			if err != nil {
				return err
			}
			if resp.StatusCode == http.StatusAccepted {
				s.accepted.Store(path, s.base(s.plain)+resp.Header.Get("Location"))
			} else if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s %.80s", resp.Status, text)
			}
			return nil
		}),
	}
}
