package admincli

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// rendered returns the text that write prints for the JSON of a response.
func rendered[A any](t *testing.T, response string, write func(*A, io.Writer, term.Style) error) (string, error) {
	t.Helper()
	var a A
	if err := json.Unmarshal([]byte(response), &a); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err := write(&a, &b, term.Style{})
	return b.String(), err
}

var clocks = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z0-9+-]+`)

func compare(t *testing.T, what, got, want string) {
	t.Helper()
	got = clocks.ReplaceAllString(got, "00:00:00")
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("%s is\n%s\nwant\n%s", what, got, want)
	}
}

// A degraded status lists the reasons and returns term.ErrFindings.
func TestStatusDegraded(t *testing.T) {
	got, err := rendered(t, `{"version":"v1.2.3","started_at":"2026-01-02T03:04:05Z","uptime_seconds":93784.2,
		"store":{"kind":"redis","up":false,"error":"dial: \u001b[31mrefused","instances":0,
			"servers":[{"shard":0,"address":"r1:6379","up":false,"breaker":"open","since":"2026-01-02T03:04:05Z","error":"dial: refused"}],
			"breaker_history":[{"time":"2026-01-02T03:04:05Z","shard":0,"server":"r1:6379","breaker":"open","error":"dial: refused"},
				{"time":"2026-01-02T03:04:04Z","shard":0,"server":"","breaker":"closed","error":""}]},
		"rules":{"digest":"abc","loaded_at":"2026-01-02T03:04:05Z","files":["rules/a.yaml","rules/b.yaml"],
			"last_error":{"time":"2026-01-02T03:04:05Z","message":"rules/a.yaml:1:2: no\nrules/b.yaml:3:4: \u001b[31mno"},"sluice_rules":1,"envoy_domains":2},
		"unready":"queue: no\nspace\u001b[31m","suspended":["posts","it's all"],"listeners":{"http":"127.0.0.1:8080","grpc":"127.0.0.1:8081"},"log_level":"info"}`, WriteStatus)
	if !errors.Is(err, term.ErrFindings) {
		t.Errorf("a degraded service ends with %v", err)
	}
	compare(t, "status", got, `
degraded: sluice v1.2.3, up 1d2h3m4s since 00:00:00

store      redis r1:6379: unavailable: on_failure of each rule decides
           dial: �[31mrefused
           r1:6379 (shard 0): circuit breaker open since 00:00:00: dial: refused
instances  unknown yet: while the store is unavailable, 1 request per key and window is allowed
not ready  queue: no�space�[31m
rules      1 rule, 2 Envoy domains, loaded 00:00:00, digest abc
           rules/a.yaml
           rules/b.yaml
           reload failed 00:00:00: the previous rule set stays in use:
           rules/a.yaml:1:2: no
           rules/b.yaml:3:4: �[31mno
suspended  posts, it's all; to undo: sluice resume posts 'it'\''s all'
breaker    00:00:00 opened, r1:6379 (shard 0): dial: refused
           00:00:00 closed, shard 0
listeners  grpc 127.0.0.1:8081, http 127.0.0.1:8080
log level  info
`)
	if _, err := rendered(t, `{"store":{"kind":"memory","up":true},"unready":"queue: no space"}`, WriteStatus); !errors.Is(err, term.ErrFindings) {
		t.Errorf("a service that is not ready ends with %v", err)
	}
	for status, want := range map[string]string{
		`{"store":{"kind":"redis","up":true,"servers":[{"shard":0,"address":"a:1","up":true},{"shard":1,"address":"b:1","up":false,"since":"2026-01-02T03:04:05Z","error":"no"},
			{"shard":2,"address":"a:1","up":true}]}}`: "store      redis a:1, b:1: 1 of 3 shards unavailable: on_failure of each rule decides for their keys\n           b:1 (shard 1): circuit breaker open since",
		`{"store":{"kind":"memory","up":true},"suspended":["posts"]}`: "suspended  posts; to undo: sluice resume posts",
	} {
		got, err := rendered(t, status, WriteStatus)
		if !errors.Is(err, term.ErrFindings) || !strings.HasPrefix(got, "degraded: ") || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s", status, err, got)
		}
	}
	for servers, want := range map[string]string{
		`[{"shard":0,"address":"a:1","up":true},{"shard":1,"address":"b:1","up":true}]`: "store      redis a:1, b:1: available\n",
		`[{"shard":0,"up":true}]`: "store      redis: available\n",
	} {
		got, err := rendered(t, `{"store":{"kind":"redis","up":true,"servers":`+servers+`}}`, WriteStatus)
		if err != nil || !strings.HasPrefix(got, "healthy: ") || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s", servers, err, got)
		}
	}
}

func TestTopTable(t *testing.T) {
	got, err := rendered(t, `{"since":"2026-01-02T03:04:05Z","entries":[
		{"rule":"posts-per-user","key":{"user":"ada"},"count":7500,"max_error":0},
		{"rule":"posts-per-user","key":{"user":"b o b"},"count":2400,"max_error":12},
		{"rule":"everything","key":{},"count":100,"max_error":99}]}`,
		func(top *adminmsg.Top, w io.Writer, s term.Style) error { return WriteTop(top, false, w, s) })
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "top", got, `
keys denied most often in the last minutes
    count      ±  rule            key            share
    7,500      0  posts-per-user  user=ada       ███████████████      75 %
    2,400     12  posts-per-user  'user=b o b'   ████▊                24 %
      100     99  everything      (all clients)  ▎                    1 %

for details: sluice peek posts-per-user user=ada
`)
}

// A screen shows the busiest rules first, with their history; a pipe gets lines.
func TestWatchDraws(t *testing.T) {
	w := NewView(2*time.Second, nil)
	var screen, lines strings.Builder
	for i, event := range []string{
		`{"time":"2026-01-02T03:04:03Z","rules":[],"top":[]}`,
		`{"time":"2026-01-02T03:04:05Z","rules":[{"name":"a","allowed":2,"denied":0},{"name":"b","allowed":1,"denied":7,"near_limit":1}],"top":[]}`,
		`{"time":"2026-01-02T03:04:07Z","rules":[{"name":"a","allowed":24690,"denied":0},{"name":"b","allowed":0,"denied":4,"shadow_denied":3}],
			"top":[{"rule":"b","key":{"user":"ada"},"count":11,"max_error":0}]}`,
		`{"time":"2026-01-02T03:04:09Z","rules":[],"top":[{"rule":"b","key":{"user":"ada"},"count":11,"max_error":0}]}`,
	} {
		var e adminmsg.Event
		if err := json.Unmarshal([]byte(event), &e); err != nil {
			t.Fatal(err)
		}
		if w.Next(&e) != (i > 0) {
			t.Fatalf("event %d is shown: %v", i, i == 0)
		}
		if i == 0 {
			continue
		}
		screen.Reset()
		if err := w.WriteScreen(&e, &screen, term.Style{}); err != nil {
			t.Fatal(err)
		}
		if err := w.WriteLines(&e, &lines); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, "the screen", strings.TrimPrefix(screen.String(), term.ClearScreen), `
00:00:00  every 2s, ctrl-C to stop

rule     allowed      denied  shadow-denied  near limit  requests
a            0/s         0/s            0/s         0/s  ▁█▁
b            0/s         0/s            0/s         0/s  █▄▁

most denied: b user=ada (11 times; sluice top shows more keys)
`)
	compare(t, "the lines", lines.String(), `
00:00:00  a  allowed 1/s  denied 0/s
00:00:00  b  allowed 0.5/s  denied 3.5/s  near limit 0.5/s
00:00:00  a  allowed 12,345/s  denied 0/s
00:00:00  b  allowed 0/s  denied 2/s  shadow-denied 1.5/s
00:00:00  no requests
`)
}

func TestBucketsSayWhatTheyAre(t *testing.T) {
	got, err := rendered(t, `{"buckets":[
		{"rule":"a","key":{"user":"ada"},"allowed":true,"limit":2,"remaining":2,"retry_after_seconds":0,"reset_after_seconds":0,"source":"store"},
		{"rule":"a","key":{"ip":"::1","user":"ada"},"allowed":false,"limit":2,"remaining":0,"retry_after_seconds":0.4804,"reset_after_seconds":61.5,"source":"store"},
		{"rule":"a","key":{},"allowed":false,"blocked_seconds":599.7,"limit":2,"remaining":0,"retry_after_seconds":599.7,"reset_after_seconds":1,"source":"store"},
		{"rule":"a","key":{"x":""},"allowed":true,"limit":2,"remaining":1,"retry_after_seconds":0,"reset_after_seconds":3,"source":"local"},
		{"rule":"a","key":{"x":"it's"},"allowed":true,"limit":2,"remaining":1,"retry_after_seconds":0,"reset_after_seconds":0,"source":"suspended"}]}`, WritePeeked)
	if !errors.Is(err, term.ErrFindings) {
		t.Errorf("buckets that deny end with %v", err)
	}
	compare(t, "peek", got, `
✓ a user=ada: 2 of 2 left, unused
✗ a ip=::1 user=ada: 0 of 2 left, retry after 481ms, fully reset in 1m2s
✗ a: blocked for another 10m
✓ a x=: 1 of 2 left, fully reset in 3s (store unavailable: on_failure is local)
✓ a 'x=it'\''s': suspended, all requests are allowed
`)
}

// The number of removed buckets is written if the store can count them.
func TestRuleReset(t *testing.T) {
	for response, want := range map[string]string{
		`{"rule":"posts","removed":12345,"dry_run":false,"next":""}`: "reset all keys of posts, 12,345 buckets and blocks\n",
		`{"rule":"it's","removed":0,"dry_run":true,"next":""}`:       "would reset all keys of 'it'\\''s', 0 buckets and blocks\n",
		`{"rule":"posts","removed":null,"dry_run":false,"next":""}`:  "reset all keys of posts, number unknown\n",
	} {
		got, err := rendered(t, response, WriteRuleReset)
		if err != nil {
			t.Error(err)
		}
		compare(t, response, got, want)
	}
}

// The command that top prints selects the first key of a rule in a file, because peek cannot select limits that requests carry.
func TestTopPeeksAtRules(t *testing.T) {
	brought := adminmsg.TopEntry{BucketName: adminmsg.BucketName{Rule: "d//1m0s", Key: adminmsg.Key{{Key: "k", Value: "v"}}}, Count: 9}
	of := adminmsg.TopEntry{BucketName: adminmsg.BucketName{Rule: "http://a", Key: adminmsg.Key{{Key: "k", Value: "v"}}}, Count: 1}
	var both, alone strings.Builder
	if err := WriteTop(&adminmsg.Top{Entries: []adminmsg.TopEntry{brought, of}}, false, &both, term.Style{}); err != nil || !strings.HasSuffix(both.String(), "sluice peek http://a k=v\n") {
		t.Errorf("%v, %s", err, &both)
	}
	if err := WriteTop(&adminmsg.Top{Entries: []adminmsg.TopEntry{brought}}, false, &alone, term.Style{}); err != nil || strings.Contains(alone.String(), "peek") {
		t.Errorf("%v, %s", err, &alone)
	}
}
