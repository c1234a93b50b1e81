package redisstore

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// TestScriptHasNoValues checks that no value is ever inserted into the script's text, and that the script runs no other
// code.
func TestScriptHasNoValues(t *testing.T) {
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && (method.Sel.Name == "Script" || method.Sel.Name == "Sha1") {
				for _, arg := range call.Args {
					if id, ok := arg.(*ast.Ident); !ok || id.Name != "script" && id.Name != "scriptSHA" {
						t.Errorf("%s: the argument of %s is not the script", name, method.Sel.Name)
					}
				}
			}
			return true
		})
	}
	for _, word := range []string{"loadstring", " load(", "dofile", "setfenv", "getfenv", "_G"} {
		if strings.Contains(script, word) {
			t.Errorf("the script contains %s", word)
		}
	}
	if strings.Count(script, "redis.call(")+strings.Count(script, "redis.pcall(") != len(commandCall.FindAllString(script, -1)) {
		t.Error("the script has a redis.call whose command is not a literal")
	}
	if n := strings.Count(script, "redis.pcall("); n != 1 || !strings.Contains(script, "redis.pcall('INFO', 'server')") {
		t.Errorf("the script has %d uses of pcall, want only that of INFO", n)
	}
}

var commandCall = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)

// commands returns the commands that the script and the store send, in lower case.
func commands() []string {
	sent := map[string]bool{"evalsha": true, "script|load": true}
	for _, m := range commandCall.FindAllStringSubmatch(script, -1) {
		sent[strings.ToLower(m[1])] = true
	}
	return slices.Sorted(maps.Keys(sent))
}

// TestLeastPrivilege checks that the permissions in the package documentation, on keys with the prefix, suffice for
// everything.
func TestLeastPrivilege(t *testing.T) {
	server := redistest.Start(t)
	text, err := os.ReadFile("store.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ := strings.Cut(string(text), "\npackage ")
	var documented []string
	for _, m := range regexp.MustCompile(`\+([a-z|]+)`).FindAllStringSubmatch(doc, -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(documented)
	if want := commands(); !slices.Equal(documented, want) {
		t.Fatalf("documented: %q\n     sent: %q", documented, want)
	}
	setUser := []string{"ACL", "SETUSER", "limiter", "on", ">secret", "~sluice:*"}
	for _, c := range documented {
		setUser = append(setUser, "+"+c)
	}
	if _, err := server.Do(setUser...); err != nil {
		t.Fatal(err)
	}
	store, err := Open(Config{URL: "redis://limiter:secret@" + server.Addr})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx := context.Background()
	for _, a := range algorithms {
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: a.name, Limit: a.limits[0], ChargeDenied: a.name != "concurrency"}))
		out := make([]sluice.Decision, 1)
		for i := range 200 {
			take := sluice.Take{Rule: rule, Key: "k", Cost: 1 + int64(i%3), IdempotencyID: uint64(i % 5), Receipt: out[0].Receipt * int64(i%2)}
			if err := store.Apply(ctx, []sluice.Take{take}, out); err != nil {
				t.Fatalf("%s: %v", a.name, err)
			}
		}
		if err := errors.Join(store.Block(ctx, sluice.Bucket{Rule: rule, Key: "k"}, time.Second), store.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"})); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
	other, err := Open(Config{URL: "redis://limiter:secret@" + server.Addr, KeyPrefix: "other:"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerMinute(1)}))
	err = other.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
	if !errors.Is(err, sluice.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("outside the prefix: error %v", err)
	}
}

// TestLeastPrivilegeInCluster checks the additional permissions for a Cluster.
func TestLeastPrivilegeInCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	user := []string{"ACL", "SETUSER", "limiter", "on", ">secret", "~sluice:*", "+eval", "+cluster|slots", "+scan", "+pttl", "+role"}
	for _, c := range commands() {
		user = append(user, "+"+c)
	}
	for _, s := range cluster.Servers {
		if _, err := s.Do(user...); err != nil {
			t.Fatal(err)
		}
	}
	store := sluice.Must(Open(Config{URL: strings.Replace(cluster.URL(), "redis://", "redis://limiter:secret@", 1)}))
	defer store.Close()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerDay(10)}))
	ctx := context.Background()
	for i := range 20 {
		take := sluice.Take{Rule: rule, Key: strings.Repeat("k", i), Cost: 1}
		err := store.Apply(ctx, []sluice.Take{take}, make([]sluice.Decision, 1))
		if err := errors.Join(err, store.Block(ctx, take.Bucket(), time.Hour), store.Reset(ctx, take.Bucket())); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.List(ctx, sluice.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// TestStaleCalendar checks that calendar windows computed from a clock that is far from the server's are detected and
// computed again.
func TestStaleCalendar(t *testing.T) {
	server := redistest.Shared(t)
	for _, skew := range []time.Duration{-1000 * time.Hour, -25 * time.Hour, 25 * time.Hour, 1000 * time.Hour} {
		store := sluice.Must(Open(Config{URL: server.URL(), KeyPrefix: t.Name() + skew.String()}))
		defer store.Close()
		store.wall = func() time.Time { return time.Now().Add(skew) }
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerCalendar(2, sluice.CalendarDay, nil)}))
		admitted := 0
		for range 5 {
			out := make([]sluice.Decision, 1)
			if err := store.Apply(context.Background(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, out); err != nil {
				t.Fatal(err)
			}
			if out[0].Allowed {
				admitted++
			}
			if out[0].ResetAfter > 24*time.Hour {
				t.Errorf("skew %v: ResetAfter is %v", skew, out[0].ResetAfter)
			}
		}
		if admitted != 2 {
			t.Errorf("skew %v: admitted %d of 2 per day", skew, admitted)
		}
	}
}

// TestForeignReply checks that a reply to another call is never accepted.
func TestForeignReply(t *testing.T) {
	server := redistest.Shared(t)
	store := sluice.Must(Open(Config{URL: server.URL(), KeyPrefix: t.Name()}))
	defer store.Close()
	for range 4 { // the reply for a key that was used before is a short one
		c := groupOf(1, 1)
		c.place()
		message, err := store.run(context.Background(), c.keys, string(c.pack(nil, 0, 41, extraTTLMillis, 0)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.read(message, 41); err != nil {
			t.Errorf("own reply: error %v", err)
		}
		if _, err := c.read(message, 42); !errors.Is(err, sluice.ErrUnavailable) {
			t.Errorf("another's: %v", err)
		}
	}
}

// TestScriptForgotten checks that a flushed script is loaded again, once, without an error.
func TestScriptForgotten(t *testing.T) {
	server := redistest.Start(t)
	store := sluice.Must(Open(Config{URL: server.URL()}))
	defer store.Close()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1000)}))
	out := make([]sluice.Decision, 1)
	for i := range 20 {
		if err := store.Apply(context.Background(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, out); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		if loads := store.loads.Load(); loads != int64(i+1) {
			t.Fatalf("script loaded %d times after %d flushes", loads, i)
		}
	}
	if out[0].Remaining != 980 {
		t.Errorf("Remaining is %d of 1000 after 20", out[0].Remaining)
	}
}

// TestClockBefore2026 checks decisions of a server whose clock is wrong, because states count from 2026 where possible.
func TestClockBefore2026(t *testing.T) {
	server := redistest.Start(t)
	for _, begin := range []time.Time{time.Date(2025, time.December, 31, 23, 59, 55, 0, time.UTC), time.Date(2019, time.May, 1, 0, 0, 0, 0, time.UTC)} {
		now := begin
		store := sluice.Must(Open(Config{URL: server.URL(), KeyPrefix: t.Name(), Now: func() time.Time { return now }}))
		defer store.Close()
		for i, l := range []sluice.Limit{sluice.PerSecond(1).WithBurst(7), sluice.Per(3, 2*time.Second).WithBurst(7), sluice.PerMinute(7).WithAlgorithm(sluice.FixedWindow)} {
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: l.String() + begin.String(), Limit: l}))
			now = begin
			for n := range int64(5) {
				out := make([]sluice.Decision, 1)
				if err := store.Apply(context.Background(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, out); err != nil {
					t.Fatalf("limit %d, take %d at %v: %v", i, n, now, err)
				}
				if out[0].Remaining != 6-n {
					t.Errorf("limit %d, take %d at %v: Remaining is %d, want %d", i, n, now, out[0].Remaining, 6-n)
				}
				now = now.Add(time.Microsecond)
			}
		}
	}
}
