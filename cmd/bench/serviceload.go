package main

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A serviceClient sends requests to a server over some connections.
type serviceClient struct {
	method string
	conns  []*grpc.ClientConn
}

func (c *serviceClient) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func dialService(addr, method string, conns int) (*serviceClient, error) {
	c := &serviceClient{method: method}
	for range conns {
		conn, err := grpc.NewClient("passthrough:"+addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// call sends one request.
func (c *serviceClient) call(ctx context.Context, request []byte) (reply []byte, err error) {
	return reply, c.conns[0].Invoke(ctx, c.method, &request, &reply)
}

// taken is the latencies of a loop's requests.
type taken struct {
	elapsed time.Duration
	waits   []time.Duration // sorted
}

// percentile returns a percentile of the latencies in milliseconds.
func (t *taken) percentile(p float64) float64 {
	if len(t.waits) == 0 {
		return math.NaN()
	}
	i := min(int(p*float64(len(t.waits))), len(t.waits)-1)
	return micros(t.waits[i]) / 1000
}

// closedLoop sends requests in order, distributed over callers that each wait for a response before the next request.
func (c *serviceClient) closedLoop(ctx context.Context, requests [][]byte, order []uint32, check func([]byte) error) (*taken, error) {
	return c.loop(ctx, requests, order, check, func(time.Time, int) time.Time { return time.Now() })
}

// openLoop sends requests when they are due, at a fixed rate. The latency of a request that is sent late, because its
// caller was still waiting, counts from when it was due. So a stall of a server also counts for the requests that were
// due during it.
func (c *serviceClient) openLoop(ctx context.Context, requests [][]byte, order []uint32, rate int, check func([]byte) error) (*taken, error) {
	return c.loop(ctx, requests, order, check, func(begun time.Time, i int) time.Time {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		return due
	})
}

// loop lets each caller send every n-th request; due waits until one may be sent and returns the time from which its
// latency counts.
func (c *serviceClient) loop(ctx context.Context, requests [][]byte, order []uint32, check func([]byte) error,
	due func(begun time.Time, i int) time.Time,
) (*taken, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waits := make([][]time.Duration, serviceCallers)
	var callers sync.WaitGroup
	begun := time.Now()
	for caller := range serviceCallers {
		conn := c.conns[caller%len(c.conns)]
		callers.Go(func() {
			var reply []byte
			for i := caller; i < len(order) && ctx.Err() == nil; i += serviceCallers {
				from := due(begun, i)
				err := conn.Invoke(ctx, c.method, &requests[order[i]], &reply)
				if err == nil {
					err = check(reply)
				}
				if err != nil {
					cancel(err)
					return
				}
				waits[caller] = append(waits[caller], time.Since(from))
			}
		})
	}
	callers.Wait()
	t := &taken{elapsed: time.Since(begun), waits: slices.Concat(waits...)}
	slices.Sort(t.waits)
	return t, context.Cause(ctx)
}
