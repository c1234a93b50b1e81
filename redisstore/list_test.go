package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// list reads all pages, and returns their number as well.
func list(t testing.TB, l sluice.BucketLister, q sluice.ListOptions, each func()) (all []sluice.BucketInfo, pages int) {
	t.Helper()
	for {
		page, err := l.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Buckets...)
		pages++
		if each != nil {
			each()
		}
		if page.NextPageToken == "" {
			return all, pages
		}
		q.PageToken = page.NextPageToken
	}
}

// limiterLister lists through a limiter, which adds the decisions.
type limiterLister struct{ *sluice.Limiter }

func (l limiterLister) List(ctx context.Context, o sluice.ListOptions) (sluice.BucketPage, error) {
	return l.ListBuckets(ctx, o)
}

// scans returns the number of SCAN commands that the server has executed.
func scans(t testing.TB, server *redistest.Server) int {
	t.Helper()
	m := regexp.MustCompile(`cmdstat_scan:calls=(\d+)`).FindStringSubmatch(do(t, server, "INFO", "commandstats"))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// TestListAll lists 100,000 keys among as many foreign ones, in pages of bounded work. It must find all keys and no
// others, even if the prefix looks like a glob pattern.
func TestListAll(t *testing.T) {
	server := redistest.Start(t, "--enable-debug-command", "yes")
	const prefix = `a[bc]*?\\:`
	store := open(t, redisstore.Config{URL: server.URL(), KeyPrefix: prefix})
	stranger := open(t, redisstore.Config{URL: server.URL(), KeyPrefix: `abxx\:`}) // the prefix would match it as a pattern
	apply(t, store, sluice.Take{Rule: hourly, Key: "u", Cost: 1})
	apply(t, stranger, sluice.Take{Rule: hourly, Key: "stranger", Cost: 1})
	const many = 100_000
	names := do(t, server, "KEYS", "*:u")
	do(t, server, "EVAL", `for i = 1, tonumber(ARGV[2]) do redis.call('SET', ARGV[1] .. i, '1', 'PX', 3600000) end`, "0", names, strconv.Itoa(many))
	do(t, server, "DEBUG", "POPULATE", strconv.Itoa(many), "somebody")

	before := scans(t, server)
	all, pages := list(t, store, sluice.ListOptions{Rules: []*sluice.Rule{hourly}, PageSize: 1000}, func() {
		now := scans(t, server)
		if now-before > 50 {
			t.Errorf("%d SCAN steps for a page", now-before)
		}
		before = now
	})
	seen := map[string]bool{}
	for _, l := range all {
		if l.Rule != hourly || l.Kind != "bucket" || l.ExpiresIn <= 0 || l.Blocked || l.KeyDigest != "" || !strings.HasPrefix(l.Key, "u") {
			t.Fatalf("%+v", l)
		}
		seen[l.Key] = true
	}
	delete(seen, "u") // which may have expired
	if len(seen) != many {
		t.Errorf("found %d of %d keys", len(seen), many)
	}
	if pages < many/3000 {
		t.Errorf("%d keys in %d pages", many, pages)
	}
}

// TestList checks the listed properties of all kinds of buckets, of blocks, digests and hash tags, and the decisions
// that a limiter adds.
func TestList(t *testing.T) {
	for name, url := range map[string]string{"single": redistest.Start(t).URL(), "cluster": redistest.StartCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			store := open(t, redisstore.Config{URL: url})
			var rules []*sluice.Rule
			long := strings.Repeat("k", 50)
			for _, k := range kinds {
				if k.name == "token_bucket_long_fraction" { // it would expire during the test
					continue
				}
				if k.name != "calendar_window" {
					k.limit.Window = 20 * time.Hour
				}
				rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: k.name, Limit: k.limit}))
				rules = append(rules, rule)
				for i := range 20 {
					apply(t, store, sluice.Take{Rule: rule, Key: fmt.Sprint("key", i), Cost: 1, IdempotencyID: uint64(i)})
				}
				apply(t, store, sluice.Take{Rule: rule, Key: "slotted", HashTag: "tenant", Cost: 1})
				apply(t, store, sluice.Take{Rule: rule, Key: long, Cost: 1})
				if err := store.Block(context.Background(), sluice.Bucket{Rule: rule, Key: "blocked"}, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			limiter := sluice.Must(sluice.NewWithRules(store, rules))
			pages, _ := list(t, limiterLister{limiter}, sluice.ListOptions{PageSize: 7}, nil)
			found := map[string]int{}
			for _, l := range pages {
				found[l.Rule.Name]++
				asked := l.KeyDigest == "" && !l.Blocked && !l.HashTagged
				if l.Blocked != (l.Key == "blocked") || l.HashTagged != (name == "cluster" && l.Key == "slotted") || (l.KeyDigest != "") != (l.Key == "") ||
					!l.Blocked && l.Kind != private.CounterKind(&l.Rule.Limit) || asked != (l.Decision != nil) || l.ExpiresIn <= 0 || l.ExpiresIn > 50*time.Hour {
					t.Errorf("%+v", l)
				}
				if asked && l.Decision.Remaining >= l.Decision.Limit && l.Rule.Name != "soft_window" {
					t.Errorf("%s %s: %+v", l.Rule.Name, l.Key, l.Decision)
				}
			}
			for _, r := range rules {
				if found[r.Name] != 23 {
					t.Errorf("%s: %d listed, want 23", r.Name, found[r.Name])
				}
			}
			if some, _ := list(t, store, sluice.ListOptions{Rules: rules[3:4]}, nil); len(some) != 23 {
				t.Errorf("one rule: %d buckets listed", len(some))
			}
			if some, _ := list(t, store, sluice.ListOptions{}, nil); len(some) != 23*len(rules) || some[0].Rule != nil || some[0].RuleDigest == "" {
				t.Errorf("unknown rule: %d buckets listed", len(some))
			}
			for _, q := range []sluice.ListOptions{
				{PageToken: "x"}, {PageToken: "1/2"}, {PageToken: "9/9/0"}, {PageToken: "0/1/x"}, {PageToken: "0/1/0/0"}, {PageToken: "0/1/0"}, {PageToken: "-1/1/0"}, {PageSize: -1}, {PageSize: 1001}, {Rules: []*sluice.Rule{nil}},
			} {
				if _, err := store.List(context.Background(), q); !errors.Is(err, sluice.ErrInvalid) {
					t.Errorf("%+v: %v", q, err)
				}
			}
		})
	}
}

// TestListRights checks that listing needs additional permissions.
func TestListRights(t *testing.T) {
	server := redistest.Start(t)
	do(t, server, "ACL", "SETUSER", "lister", "on", ">secret", "~sluice:*", "+scan", "+pttl")
	store := open(t, redisstore.Config{URL: server.URL()})
	apply(t, store, sluice.Take{Rule: hourly, Key: "k", Cost: 1})
	lister := open(t, redisstore.Config{URL: "redis://lister:secret@" + server.Addr})
	if all, _ := list(t, lister, sluice.ListOptions{}, nil); len(all) != 1 {
		t.Errorf("%d listed", len(all))
	}
	do(t, server, "ACL", "SETUSER", "lister", "-scan")
	if _, err := lister.List(context.Background(), sluice.ListOptions{}); !errors.Is(err, redisstore.ErrConfig) {
		t.Errorf("without the permission: error %v", err)
	}
}
