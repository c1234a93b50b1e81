package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// respOrder returns the order of keys.
func respOrder(seed uint64, n int) []uint32 {
	r := rand.New(rand.NewPCG(seed, 4))
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(r.IntN(serviceKeys))
	}
	return order
}

// Limits of the scenario: one unit is refilled in half an hour, longer than any run.
const respCount, respPeriod = "2", "3600"

// respRequest returns a command that takes one unit of a key.
func respRequest(key string, limit int) []byte {
	b := []byte("*5\r\n")
	for _, arg := range []string{"CL.THROTTLE", key, strconv.Itoa(limit - 1), respCount, respPeriod} {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// respClient sends commands over its own connections.
type respClient struct {
	addr  string
	floor bool
}

// request returns the encoded command for the i-th key.
func (c *respClient) request(i uint32) []byte {
	if c.floor {
		b := make([]byte, floorFrame)
		copy(b, userKey(int(i)))
		return b
	}
	return respRequest(userKey(int(i)), userLimit)
}

// pipelined sends each connection's share of the requests, as many at a time as it has callers, and waits for the
// replies.
func (c *respClient) pipelined(ctx context.Context, l *serviceLoad, order []uint32) (*taken, error) {
	requests := make([][]byte, serviceKeys)
	for i := range requests {
		requests[i] = c.request(uint32(i))
	}
	conns := make([]net.Conn, l.conns)
	for i := range conns {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		conns[i] = conn
	}
	deadline, _ := ctx.Deadline()
	waits, faults := make([][]time.Duration, len(conns)), make([]error, len(conns))
	var all sync.WaitGroup
	begun := time.Now()
	for i, conn := range conns {
		_ = conn.SetDeadline(deadline)
		part := order[i*len(order)/len(conns) : (i+1)*len(order)/len(conns)]
		all.Go(func() { waits[i], faults[i] = c.drive(conn, requests, part, serviceCallers/l.conns) })
	}
	all.Wait()
	t := &taken{elapsed: time.Since(begun), waits: slices.Concat(waits...)}
	slices.Sort(t.waits)
	for _, err := range faults {
		if err != nil {
			return nil, err
		}
	}
	if len(t.waits) != len(order) {
		return nil, failf("%d replies to %d requests", len(t.waits), len(order))
	}
	return t, nil
}

// drive sends requests over one connection, depth at a time, and checks every reply.
func (c *respClient) drive(conn net.Conn, requests [][]byte, order []uint32, depth int) (waits []time.Duration, err error) {
	in, out := make([]byte, 64<<10), make([]byte, 0, 64<<10)
	waits = make([]time.Duration, 0, len(order))
	for len(order) > 0 {
		n := min(depth, len(order))
		out = out[:0]
		for _, i := range order[:n] {
			out = append(out, requests[i]...)
		}
		order = order[n:]
		from := time.Now()
		if _, err := conn.Write(out); err != nil {
			return nil, err
		}
		for end, missing := 0, n; missing > 0; {
			got, err := conn.Read(in[end:])
			if err != nil {
				return nil, err
			}
			end += got
			at := 0
			for missing > 0 {
				size, err := c.checked(in[at:end])
				if err != nil {
					return nil, err
				}
				if size == 0 {
					break
				}
				at += size
				missing--
			}
			end = copy(in, in[at:end])
		}
		wait := time.Since(from)
		for range n {
			waits = append(waits, wait)
		}
	}
	return waits, nil
}

// checked returns the size of the reply at the start of b, which must allow, or 0 if it is incomplete.
func (c *respClient) checked(b []byte) (size int, err error) {
	if c.floor {
		if len(b) < floorFrame {
			return 0, nil
		}
		if b[0] != 'u' {
			return 0, failf("the floor replied %q", b[:floorFrame])
		}
		return floorFrame, nil
	}
	five, size, err := readFive(b)
	if err == nil && size > 0 && (five[0] != 0 || five[1] != userLimit || five[3] != -1) {
		err = failf("answered %v", five)
	}
	return size, err
}

// readFive parses a reply to CL.THROTTLE and returns its size in bytes, or 0 if it is incomplete.
func readFive(b []byte) (five [5]int64, size int, err error) {
	if len(b) < 4 {
		return five, 0, nil
	}
	if string(b[:4]) != "*5\r\n" {
		line, _, _ := bytes.Cut(b, []byte("\r"))
		return five, 0, failf("answered %.80q", line)
	}
	at := 4
	for i := range five {
		if at == len(b) {
			return five, 0, nil
		}
		if b[at] != ':' {
			return five, 0, failf("answered %.80q", b)
		}
		n, negative := int64(0), false
		for at++; at < len(b) && b[at] != '\r'; at++ {
			if b[at] == '-' {
				negative = true
			} else {
				n = 10*n + int64(b[at]-'0')
			}
		}
		if at+2 > len(b) {
			return five, 0, nil
		}
		if negative {
			n = -n
		}
		five[i] = n
		at += 2
	}
	return five, at, nil
}

// callers runs 64 goroutines with a Redis client, each of which waits for a reply before the next command.
func (c *respClient) callers(ctx context.Context, _ *serviceLoad, order []uint32) (*taken, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{c.addr}, DisableCache: true, ForceSingleClient: true, PipelineMultiplex: 2,
		MaxFlushDelay: 20 * time.Microsecond, ConnWriteTimeout: childTime,
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waits := make([][]time.Duration, serviceCallers)
	burst := strconv.Itoa(userLimit - 1)
	var all sync.WaitGroup
	begun := time.Now()
	for caller := range serviceCallers {
		all.Go(func() {
			for i := caller; i < len(order) && ctx.Err() == nil; i += serviceCallers {
				from := time.Now()
				cmd := client.B().Arbitrary("CL.THROTTLE").Keys(userKey(int(order[i]))).Args(burst, respCount, respPeriod).Build()
				five, err := client.Do(ctx, cmd).AsIntSlice()
				if err == nil && (len(five) != 5 || five[0] != 0 || five[1] != userLimit) {
					err = failf("answered %v", five)
				}
				if err != nil {
					cancel(err)
					return
				}
				waits[caller] = append(waits[caller], time.Since(from))
			}
		})
	}
	all.Wait()
	t := &taken{elapsed: time.Since(begun), waits: slices.Concat(waits...)}
	slices.Sort(t.waits)
	return t, context.Cause(ctx)
}

// ask sends one command.
func (c *respClient) ask(request []byte) (five [5]int64, err error) {
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		return five, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(request); err != nil {
		return five, err
	}
	b := make([]byte, 1024)
	for end, size := 0, 0; size == 0; {
		n, err := conn.Read(b[end:])
		if err != nil {
			return five, err
		}
		end += n
		if five, size, err = readFive(b[:end]); err != nil {
			return five, err
		}
	}
	return five, nil
}

// exhaust uses up the hot key's limit, and checks that the server denies from then on.
func (c *respClient) exhaust() error {
	for i := range hotLimit + 1 {
		five, err := c.ask(respRequest(hotKey, hotLimit))
		if err != nil {
			return err
		}
		if limited := five[0] == 1; limited != (i == hotLimit) {
			return failf("hit %d with a limit of %d: reply %v", i+1, hotLimit, five)
		}
	}
	return nil
}

// verify takes one more unit of some keys: the remaining quota proves that the server counted every hit.
func (c *respClient) verify(sent []uint32) error {
	for _, key := range []uint32{0, serviceKeys / 2, serviceKeys - 1, sent[len(sent)-1]} {
		hits := int64(1)
		for _, k := range sent {
			if k == key {
				hits++
			}
		}
		five, err := c.ask(c.request(key))
		if err != nil {
			return err
		}
		if want := userLimit - hits; five[2] != want {
			return failf("after %d hits Remaining is %d of %d, want %d", hits, five[2], userLimit, want)
		}
		sent = append(sent, key)
	}
	return nil
}
