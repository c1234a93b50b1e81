package main

import (
	"errors"
	"math"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestRLSWire(t *testing.T) {
	var r rls.RateLimitRequest
	if err := proto.Unmarshal(rlsWire.encode([]string{"a", hotKey}), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Descriptors) != 2 || r.Domain != serviceDomain {
		t.Fatalf("%v", &r)
	}
	for i, want := range []string{"user a", "hot hot"} {
		if e := r.Descriptors[i].Entries; len(e) != 1 || e[0].Key+" "+e[0].Value != want {
			t.Errorf("descriptor %d: %v, want %s", i, e, want)
		}
	}
	reply, err := proto.Marshal(&rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OVER_LIMIT,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{
			{Code: rls.RateLimitResponse_OVER_LIMIT, DurationUntilReset: &durationpb.Duration{Seconds: 9}},
			{Code: rls.RateLimitResponse_OK, LimitRemaining: math.MaxUint32},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := rlsWire.read(reply)
	if err != nil || len(got) != 2 || got[0] != (verdictOf{true, 0}) || got[1] != (verdictOf{false, math.MaxUint32}) {
		t.Errorf("%v %v", got, err)
	}
	for _, check := range []func([]byte) error{
		rlsWire.check(1, true), rlsWire.check(2, true), rlsWire.check(2, false), rlsWire.check(3, false),
	} {
		if err := check(reply); !errors.Is(err, errCheck) {
			t.Errorf("passed: %v", err)
		}
	}
	allowed, err := proto.Marshal(&rls.RateLimitResponse{Statuses: []*rls.RateLimitResponse_DescriptorStatus{
		{Code: rls.RateLimitResponse_OK}, {Code: rls.RateLimitResponse_OK},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for keys, right := range map[int]bool{1: false, 2: true, 3: false} {
		if err := rlsWire.check(keys, false)(allowed); (err == nil) != right {
			t.Errorf("two decisions for %d keys: %v", keys, err)
		}
	}
	if _, err := rlsWire.read(reply[:len(reply)-1]); err == nil {
		t.Error("a truncated response was accepted")
	}
}

func TestGubernatorWire(t *testing.T) {
	answer := appendNumber(appendNumber(nil, 1, 1), 3, 7)
	fault := appendText(nil, 5, "no such peer")
	got, err := gubernatorWire.read(appendNested(nil, 1, answer))
	if err != nil || len(got) != 1 || got[0] != (verdictOf{true, 7}) {
		t.Errorf("%v %v", got, err)
	}
	if _, err := gubernatorWire.read(appendNested(appendNested(nil, 1, answer), 1, fault)); !errors.Is(err, errCheck) {
		t.Errorf("an error inside a response was accepted: %v", err)
	}
}

// TestServiceLoops sends requests to the floor, which always allows and so must not be accepted as a limiter.
func TestServiceLoops(t *testing.T) {
	addrs, err := freeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = serveFloor(addrs[0]) }() // until the test binary ends
	if err := reachable(t.Context(), addrs[0]); err != nil {
		t.Fatal(err)
	}
	c, err := dialService(addrs[0], rlsWire.method, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	l := &serviceLoad{takes: 3}
	requests := l.requests(rlsWire)
	order, choices := l.order(1, 500)
	if len(requests) != choices {
		t.Errorf("%d requests, %d choices", len(requests), choices)
	}
	took, err := c.closedLoop(t.Context(), requests, order, rlsWire.check(3, false))
	if err != nil || len(took.waits) != 500 {
		t.Errorf("%d responses: %v", len(took.waits), err)
	}
	took, err = c.openLoop(t.Context(), requests, order[:50], 1_000_000, rlsWire.check(3, false))
	if err != nil || len(took.waits) != 50 || took.percentile(0.5) > took.percentile(0.99) {
		t.Errorf("%d responses: %v", len(took.waits), err)
	}
	if _, err := c.closedLoop(t.Context(), requests, order, rlsWire.check(3, true)); !errors.Is(err, errCheck) {
		t.Errorf("an allowed decision was accepted as denied: %v", err)
	}
	if err := c.verify(t.Context(), rlsWire, l, order, choices); !errors.Is(err, errCheck) {
		t.Errorf("the floor was accepted though it does not count: %v", err)
	}
	if err := c.exhaust(t.Context(), rlsWire); !errors.Is(err, errCheck) {
		t.Errorf("the floor was accepted though it does not deny: %v", err)
	}
}

// TestLateRequests checks that the latency of a late request counts from when it was due.
func TestLateRequests(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	late := time.Now().Add(-time.Second)
	c, err := dialService(l.Addr().String(), rlsWire.method, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	go func() { _ = serveFloorOn(l) }()
	took, err := c.loop(t.Context(), [][]byte{rlsWire.encode([]string{"a"})}, []uint32{0}, rlsWire.check(1, false),
		func(time.Time, int) time.Time { return late })
	if err != nil || took.percentile(0.5) < 1000 {
		t.Errorf("a request that was due a second ago waited %v ms: %v", took.percentile(0.5), err)
	}
}

func TestProcessFigures(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Process: self}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("/proc does not exist")
	}
	before := processTime(cmd)
	for n := 0; processTime(cmd)-before < 30*time.Millisecond; n++ {
		if n > 100_000 { // each read takes some microseconds
			t.Fatal("CPU time does not grow")
		}
	}
	if got := residentOf(cmd); got < 5 || got > 10_000 {
		t.Errorf("resident: %v MB", got)
	}
}
