package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// TestCrowdFloors checks that the floors implement their protocols well enough for callers, which check every response.
func TestCrowdFloors(t *testing.T) {
	addrs, err := freeAddrs(3)
	if err != nil {
		t.Fatal(err)
	}
	at := place{grpc: addrs[0], http: addrs[1], third: addrs[2]}
	go func() { _ = serveCrowdFloor(job{Floor: at.grpc, FloorHTTP: at.http, FloorRESP: at.third}) }() // until the test binary ends
	for _, addr := range addrs {
		if err := reachable(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range crowds() {
		if c.role != roleFloor {
			continue
		}
		to, err := c.target(t.Context(), at, 40)
		if err != nil {
			t.Fatal(err)
		}
		r, err := loadgen.Run(t.Context(), loadgen.Plan{
			Target: to, Callers: 40, Requests: 2000, Pipeline: 300, Timeout: time.Minute, Keys: loadgen.Keys{Count: serviceKeys, Seed: 1},
		})
		if err != nil || r.Sum.Allowed != 2000 || r.Requests() != 2000 {
			t.Errorf("%s: %d allowed, %v %v", c.name, r.Sum.Allowed, r.Reasons, err)
		}
		if err := to.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEndOfCommand(t *testing.T) {
	one := "*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n"
	for i := range one {
		if got := endOfCommand([]byte(one[:i])); got != -1 {
			t.Errorf("a command cut at %d bytes ends at %d", i, got)
		}
	}
	if got := endOfCommand([]byte(one + one[:9])); got != len(one) {
		t.Errorf("ends at %d, want %d", got, len(one))
	}
}

// TestOverloadReport checks that ratios are computed within each repetition, and that disturbed ones are excluded.
func TestOverloadReport(t *testing.T) {
	run := func(peak, crowd, begin, end float64, disturbed bool) *result {
		return &result{Overload: &overloadRun{
			Callers: 16, Peak: crowdPhase{PerSecond: peak, CPU: 10}, Crowd: crowdPhase{PerSecond: crowd, CPU: 12.5, Late: 0.01},
			Begin: begin, End: end, Disturbed: disturbed,
		}}
	}
	w := overloadRow{Contender: "overload-grpc", floor: "floor-grpc"}
	w.fill([]*result{run(100, 95, 50, 50, false), run(200, 170, 50, 60, false), run(100, 100, 50, 55, false), run(100, 1, 50, 500, true)})
	if w.Kept != 0.95 || w.KeptMin != 0.85 || w.KeptMax != 1 || w.KeptCPU != 0.8 || w.Grew != 1.1 || w.Repeated != 3 || w.Disturbed {
		t.Errorf("%+v", w)
	}
	floor := overloadRow{Contender: "floor-grpc"}
	floor.fill([]*result{run(100, 50, 50, 50, false)})
	r := report{Overload: []overloadRow{floor, w, {Contender: "overload-http", Invalid: "denied"}}}
	var text strings.Builder
	writeOverload(&text, r.Overload)
	if got := text.String(); !strings.Contains(got, "0.85–1.00") || !strings.Contains(got, "INVALID") {
		t.Error(got)
	}
	got, err := json.Marshal(r.overloadBars())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"0.95× peak","Verdict":"pass"`, `"0.80× peak","Verdict":"miss"`, `"1.10× start","Verdict":"pass"`, `"1.90× its share","Verdict":"pass"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s does not contain %s", got, want)
		}
	}
	if n := len(r.overloadBars()); n != 4 {
		t.Errorf("%d bars", n)
	}
	w.fill([]*result{run(100, 95, 50, 50, true)})
	r.Overload = []overloadRow{w}
	if b := r.overloadBars(); b[0].Verdict != "disturbed" {
		t.Errorf("%+v", b)
	}
}

func TestSampled(t *testing.T) {
	s := &sampled{values: []float64{9, 1, 2, 3, 4, 3, 2, 8}}
	for _, test := range []struct{ from, to, want float64 }{{0, 1, 9}, {0.25, 0.5, 3}, {0.75, 1, 8}, {0.5, 0.75, 4}} {
		if got := s.most(test.from, test.to); got != test.want {
			t.Errorf("maximum between %v and %v is %v, want %v", test.from, test.to, got, test.want)
		}
	}
	if got := new(sampled).most(0, 1); got != 0 {
		t.Errorf("maximum of no samples is %v", got)
	}
}
