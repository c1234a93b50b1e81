package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen/bench"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// 20 times as many clients as are needed to saturate a service all get responses, and each key is allowed exactly its limit.
func TestBenchCrowd(t *testing.T) {
	const limit, keys, callers, requests = 7, 50, 20 * 16, 1600
	p, port := startRESP(t, "", fmt.Sprintf("rules: {paths: [%q]}",
		rulesDir(t, fmt.Sprintf("  - {key: k, rate_limit: {unit: year, requests_per_unit: %d}}\n", limit))))
	for name, args := range map[string][]string{
		"rls":   {"rls://" + p.grpc, "--domain", "d", "--descriptor", fmt.Sprintf("k=grpc{1..%d}", keys)},
		"http":  {"http://" + p.http + "/v1/check", "--domain", "d", "--descriptor", fmt.Sprintf("k=http{1..%d}", keys)},
		"redis": {"redis://127.0.0.1:" + port, "--keys", fmt.Sprint(keys), "--burst", fmt.Sprint(limit - 1), "--count", "1", "--period", "1000000"},
	} {
		args = append([]string{"bench"}, args...)
		args = append(args, "-o", "json", "--timeout", "1m", "--concurrency", fmt.Sprint(callers), "-n", fmt.Sprint(requests))
		code, out, stderr := sluiceRun(t, args...)
		var r bench.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != term.ExitFine {
			t.Fatalf("%s: exit %d, %v: %s%s", name, code, err, out, stderr)
		}
		if r.Requests != requests || r.Errors != 0 || r.Allowed != limit*keys || r.Denied != requests-limit*keys {
			t.Errorf("%s: %d requests, %d allowed, %d denied, %d errors, %v", name, r.Requests, r.Allowed, r.Denied, r.Errors, r.NoResponse)
		}
	}
}
