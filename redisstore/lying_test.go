package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
	"github.com/sluiceproject/sluice/redisstore"
)

// liar is a server that implements the Redis protocol as a primary, a sentinel or a node of a Cluster, depending on the
// commands it receives. One reply in several is malformed.
type liar struct {
	addr   string
	lies   []string
	often  int // one malformed reply in so many
	told   atomic.Int64
	truths atomic.Int64
}

func startLiar(t *testing.T, often int, lies ...string) *liar {
	t.Helper()
	s := &liar{lies: lies, often: often}
	s.addr = startFake(t, func(command []string) (string, bool) { return s.reply(command), true })
	return s
}

// startFake starts a server that speaks the Redis protocol. If ok is false, the server sends nothing after the reply,
// and reads until the client closes the connection.
func startFake(t *testing.T, reply func(command []string) (text string, ok bool)) (addr string) {
	t.Helper()
	return tcptest.Serve(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			command, err := readCommand(in)
			if err != nil {
				return
			}
			text, ok := reply(command)
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			if !ok {
				_, _ = io.Copy(io.Discard, in)
				return
			}
		}
	})
}

func readCommand(in *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	words := make([]string, n)
	for i := range words {
		size, err := number()
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		words[i] = string(b[:size])
	}
	return words, err
}

func (s *liar) reply(c []string) string {
	if rand.IntN(s.often) == 0 {
		s.told.Add(1)
		return s.lies[rand.IntN(len(s.lies))]
	}
	s.truths.Add(1)
	host, port, _ := net.SplitHostPort(s.addr)
	bulk := func(words ...string) (b string) {
		for _, w := range words {
			b += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
		}
		return b
	}
	switch strings.ToUpper(c[0]) {
	case "HELLO":
		switch v := rand.IntN(8); {
		case v == 0:
			return "-ERR unknown command 'HELLO'\r\n"
		case v < 3:
			return "%2\r\n+proto\r\n:3\r\n+version\r\n$5\r\n6.2.0\r\n"
		default:
			return "%2\r\n+proto\r\n:3\r\n+version\r\n$5\r\n8.0.0\r\n"
		}
	case "PING":
		return "+PONG\r\n"
	case "ROLE":
		return "*3\r\n" + bulk("master") + ":0\r\n*0\r\n"
	case "SENTINEL":
		if strings.EqualFold(c[1], "SENTINELS") {
			return "*0\r\n"
		}
		return "*2\r\n" + bulk(host, port)
	case "SUBSCRIBE", "UNSUBSCRIBE":
		b := ""
		for i, channel := range c[1:] {
			b += ">3\r\n" + bulk(strings.ToLower(c[0]), channel) + fmt.Sprintf(":%d\r\n", i)
		}
		return b
	case "CLUSTER":
		if strings.EqualFold(c[1], "SHARDS") {
			return "*1\r\n%2\r\n" + bulk("slots") + "*2\r\n:0\r\n:16383\r\n" + bulk("nodes") + "*1\r\n%4\r\n" +
				bulk("health", "online", "role", "master", "endpoint", host, "port") + ":" + port + "\r\n"
		}
		return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + bulk(host) + ":" + port + "\r\n"
	case "TIME":
		return "*2\r\n" + bulk(strconv.FormatInt(time.Now().Unix(), 10), "0")
	}
	return "+OK\r\n"
}

func message(channel, text string) string {
	return fmt.Sprintf(">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(text), text)
}

// lies are replies that crash a process that reads them with the client library alone: it allocates as much as they
// announce, recurses as deep as they nest, or indexes elements that are missing.
var lies = []string{
	"$-9\r\n", "*-9\r\n", "%-1\r\n", "$9999999999999\r\n", "*1000000000\r\n", "%1000000000\r\n", "~4611686018427387904\r\n",
	strings.Repeat("*1\r\n", 100_000), strings.Repeat("|1\r\n+a\r\n+b\r\n", 10_000), "$?\r\n;9999999999999\r\n", "*?\r\n",
	strings.Repeat(">2\r\n+invalidate\r\n*0\r\n", 20_000), "+" + strings.Repeat("x", 1<<20), "$1048576000\r\nx",
	"-MOVED\r\n", "-MOVED 1\r\n", "-ERR MOVED 1\r\n", "-ASK\r\n", "-ASK 1\r\n", "!5\r\nMOVED\r\n", "-REDIRECT\r\n", "!8\r\nREDIRECT\r\n",
	">2\r\n+subscribe\r\n+x\r\n", ">3\r\n+psubscribe\r\n+x\r\n:1\r\n", ">3\r\n+unsubscribe\r\n+x\r\n:1\r\n+OK\r\n", ">3\r\n+ssubscribe\r\n_\r\n:1\r\n+OK\r\n",
	message("+sentinel", ""), message("+sentinel", "a b c"), message("+switch-master", "m"), message("+switch-master", "m a b c"),
	message("+reboot", "master m"), message("+reboot", "slave m a b"), message("+sdown", "slave"), message("+slave", "slave a"),
	"*0\r\n", "*1\r\n$1\r\nx\r\n", "*-1\r\n", "_\r\n", "+QUEUED\r\n", "+OK\r\n+OK\r\n", "+PONG\r\n+PONG\r\n+PONG\r\n", "%0\r\n", ">0\r\n", "~0\r\n",
	"*1\r\n>2\r\n+subscribe\r\n+x\r\n", ":\r\n", "#\r\n", "_x\r\n", "$5\r\nabc", "\x00", "HTTP/1.1 400 Bad Request\r\n\r\n", "-\r\n", "$-1\r\n",
	"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n", "*3\r\n$7\r\nmessage\r\n$9\r\n+sentinel\r\n$0\r\n\r\n", "%1\r\n*0\r\n*0\r\n",
	"*1\r\n*3\r\n:0\r\n:99999999\r\n*2\r\n$0\r\n\r\n:-1\r\n", "*1\r\n%1\r\n+nodes\r\n*1\r\n*0\r\n",
}

// TestLyingServers checks, for malformed replies at any time and all kinds of clients, that calls return errors that
// wrap ErrUnavailable, in time, and that the process survives.
func TestLyingServers(t *testing.T) {
	t.Parallel()
	opens := 12
	if os.Getenv("SLUICE_SOAK") != "" {
		opens = 2000
	}
	for name, form := range map[string]string{
		"single": "redis://%[1]s", "sentinel": "redis://%[1]s?addr=%[1]s&master_set=m", "cluster": "redis://%[1]s?addr=%[1]s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerMinute(5)}))
			var told, truths, opened int64
			for i := range opens {
				s := startLiar(t, []int{2, 8, 20, 60}[i%4], lies...)
				store, err := redisstore.Open(redisstore.Config{URL: fmt.Sprintf(form, s.addr)})
				if err != nil {
					if !errors.Is(err, redisstore.ErrConfig) {
						t.Fatal(err)
					}
					continue
				}
				opened++
				for range 40 {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					err := store.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
					cancel()
					if err != nil && !errors.Is(err, sluice.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v does not wrap ErrUnavailable", err)
					}
				}
				store.Close()
				told, truths = told+s.told.Load(), truths+s.truths.Load()
			}
			t.Logf("%d of %d stores opened, %d malformed and %d correct replies", opened, opens, told, truths)
			if told < int64(opens) || truths < int64(opens) {
				t.Error("too few malformed or correct replies")
			}
		})
	}
}

// TestLieNamed checks that the error of a rejected reply names the server, the bound and the value.
func TestLieNamed(t *testing.T) {
	t.Parallel()
	for lie, want := range map[string]string{
		"$-9\r\n": "length -9", "*1000000000\r\n": "reply of 1000000000 elements, maximum 262144", "$9999999999999\r\n": "reply of 9999999999999 bytes, maximum 16777216",
		strings.Repeat("*1\r\n", 100_000): "nested more than 16 deep", "+" + strings.Repeat("x", 1<<20): "line of more than 65536 bytes",
	} {
		s := startLiar(t, 1, lie)
		store, err := redisstore.Open(redisstore.Config{URL: "redis://" + s.addr})
		if err != nil {
			t.Fatal(err)
		}
		err = store.Ping(t.Context())
		if !errors.Is(err, sluice.ErrUnavailable) || !strings.Contains(err.Error(), "Redis "+s.addr) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", lie, err)
		}
		t.Log(err)
		store.Close()
	}
}
