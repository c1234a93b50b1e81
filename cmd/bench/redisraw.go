package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice/redisstore"
)

// The floor of the Redis scenario works like redis-benchmark, which cannot send an argument that contains zero bytes:
// it writes prepared requests, several at once on each connection, and counts the replies. They are exactly the
// requests that redisstore sends for one decision each.

var remoteFloors = []remoteContender{
	rawContender("redis-raw", 1, spread64, spread256, alone, hot64),
	rawContender("redis-raw-P16", 16, spread64, spread256, hot64),
	{
		contender: contender{
			name: "redis-bare", role: roleFloor, clock: "none", scenarios: []string{redisMem},
			about: "SET of a large integer with a TTL, under the bare key",
		},
		connect: connectBare,
	},
}

func rawContender(name string, pipeline int, phases ...string) remoteContender {
	about := "redisstore's requests, prepared, one connection per caller; replies are only counted"
	if pipeline > 1 {
		about += fmt.Sprintf("; %d requests at a time per connection", pipeline)
	}
	return remoteContender{
		contender: contender{name: name, role: roleFloor, about: about, clock: serverClock, scenarios: []string{redisLoad}},
		phases:    phases, requests: oneRequest, connect: connectStore(1, bucketLimit), raw: pipeline,
	}
}

// A tap is a client that stores the last request.
type tap struct {
	rueidis.Client
	request []string
}

func (t *tap) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	t.request = slices.Clone(cmd.Commands())
	return t.Client.Do(ctx, cmd)
}

// captured returns the request that redisstore sends for a decision on a key.
func captured(server *redisServer, sp spec, key string) ([]string, error) {
	client, err := server.client(nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	t := &tap{Client: client}
	store, err := redisstore.Open(redisstore.Config{Client: t})
	if err != nil {
		return nil, err
	}
	rules, err := benchRules(bucketLimit(sp), 1)
	if err != nil {
		return nil, err
	}
	for range 2 { // the first also requests the server's run ID
		if _, err := (storeRemote{store, rules}).decide(key); err != nil {
			return nil, err
		}
	}
	if len(t.request) != 6 || t.request[0] != "EVALSHA" || !strings.HasSuffix(t.request[3], key) {
		return nil, failf("redisstore sent %q", t.request)
	}
	return t.request, nil
}

// rawLoad contains the requests of each connection, several per batch.
type rawLoad struct {
	server   *redisServer
	pipeline int
	batches  [][][]byte // by connection
}

func newRawLoad(server *redisServer, sp spec, order []string, callers, pipeline int) (*rawLoad, error) {
	if len(order)%pipeline != 0 {
		return nil, fmt.Errorf("%d requests cannot be sent %d at a time", len(order), pipeline)
	}
	const placeholder = "user:1234567"
	request, err := captured(server, sp, placeholder)
	if err != nil {
		return nil, err
	}
	if _, err := server.do("DEL", request[3]); err != nil {
		return nil, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(request))
	for _, arg := range request {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(arg), arg)
	}
	parts := strings.Split(text.String(), placeholder) // the names of keys have the same length
	l := &rawLoad{server: server, pipeline: pipeline, batches: make([][][]byte, callers)}
	for i := 0; i < len(order); i += pipeline {
		var batch []byte
		for _, key := range order[i : i+pipeline] {
			for j, part := range parts {
				if j > 0 {
					batch = append(batch, key...)
				}
				batch = append(batch, part...)
			}
		}
		at := i / pipeline % callers
		l.batches[at] = append(l.batches[at], batch)
	}
	return l, nil
}

// run writes all requests and waits for all replies.
func (l *rawLoad) run() (took []time.Duration, err error) {
	var mu sync.Mutex // guards took and err
	var done sync.WaitGroup
	for _, batches := range l.batches {
		done.Go(func() {
			t, e := l.connection(batches)
			mu.Lock()
			defer mu.Unlock()
			took, err = append(took, t...), errors.Join(err, e)
		})
	}
	done.Wait()
	return took, err
}

func (l *rawLoad) connection(batches [][]byte) (took []time.Duration, err error) {
	conn, err := net.Dial("tcp", l.server.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	replies := bufio.NewReaderSize(conn, 16<<10)
	took = make([]time.Duration, 0, len(batches))
	for i, batch := range batches {
		start := time.Now()
		if _, err := conn.Write(batch); err != nil {
			return nil, err
		}
		for range l.pipeline {
			if err := skipReply(replies); err != nil {
				return nil, fmt.Errorf("batch %d: %w", i, err)
			}
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// skipReply reads a reply of strings, numbers and lists, and examines it only if it is an error.
func skipReply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	switch line[0] {
	case ':', '+':
		return nil
	case '-':
		return errors.New(string(line))
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < 0 {
		return err
	}
	if line[0] == '$' {
		_, err := r.Discard(n + len("\r\n"))
		return err
	}
	if line[0] != '*' {
		return fmt.Errorf("%w: reply %q", io.ErrUnexpectedEOF, line)
	}
	for range n {
		if err := skipReply(r); err != nil {
			return err
		}
	}
	return nil
}
