// Command walk executes one of four code paths, such as a request through the queue, and writes the coverage of each run to a
// directory: walk NAME DIRECTORY [REDIS]. It must be built with coverage. Setup and a first warm-up run are not recorded.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/coverage"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

func main() {
	log.SetFlags(0)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // this discards the output of package log too
	log.SetOutput(os.Stderr)
	name, directory := os.Args[1], os.Args[2]
	walks := map[string]func() (before, walk func()){
		"http":  func() (before, walk func()) { return throughRedis(os.Args[3]) },
		"queue": throughQueue,
		"rls":   throughRLS,
		"rules": throughRules,
	}
	before, walk := walks[name]()
	before()
	walk() // warm-up
	for i := range runs {
		before()
		must(0, coverage.ClearCounters())
		walk()
		to := filepath.Join(directory, fmt.Sprint(i))
		must(0, os.Mkdir(to, 0o700))
		must(0, coverage.WriteMetaDir(to))
		must(0, coverage.WriteCountersDir(to))
	}
}

// runs is the number of recorded runs. Background work does not occur in every run, so that files of all runs exclude it.
const runs = 3

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func nothing() {}

// setOf loads a rule set from a new rule file.
func setOf(text string) (file string, set func() *rules.Set) {
	file = filepath.Join(must(os.MkdirTemp(os.Args[2], "rules")), "rules.yaml")
	must(0, os.WriteFile(file, []byte(text), 0o600))
	loaded := must(rulefile.Load(rulefile.Options{}, file))
	return file, func() *rules.Set { return loaded.Set }
}

// throughRedis sends a request through httplimit with limits in Redis.
func throughRedis(url string) (before, walk func()) {
	store := must(redisstore.Open(redisstore.Config{URL: url, KeyPrefix: "walk:"}))
	must(0, store.Join(context.Background()))
	limiter := must(sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(5*time.Second)))
	_, set := setOf("rules:\n  - {name: posts, match: {method: POST, path: /posts}, per: header:X-User, limit: 1000/min}\n")
	api := httplimit.RulesMiddleware(limiter, set)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return nothing, func() {
		r := httptest.NewRequest("POST", "/posts", nil)
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		if api.ServeHTTP(w, r); w.Code != http.StatusOK {
			log.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

// throughQueue sends a request over the limit through the gateway, which queues it and delivers it later.
func throughQueue() (before, walk func()) {
	asked := make(chan struct{}, 16)
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	to := must(upstream.New(upstream.Config{Name: "app", Servers: []string{app.URL}, Merge: quota.Merge}))
	kept := must(queue.Open(queue.Config{Directory: must(os.MkdirTemp(os.Args[2], "queue"))}))
	_, set := setOf("rules:\n  - {name: once, match: {path: /once}, limit: 2/s, algorithm: fixed_window, on_limit: queue}\n")
	g := must(gateway.New(gateway.Config{
		Routes: []gateway.Route{{Name: "all", Path: must(match.ParsePattern("/**", false)), Upstream: to}},
		Rules:  set, Limiter: must(sluice.NewWithRules(memstore.New(), nil)), Queue: kept, InternalHandler: kept.Handler(),
	}))
	go func() { _ = kept.Run(context.Background()) }()
	go g.Run(context.Background())
	server := httptest.NewServer(g)
	send := func() int {
		r := must(http.Post(server.URL+"/once", "text/plain", nil))
		r.Body.Close()
		return r.StatusCode
	}
	delivered := func() int64 { return kept.Counts(context.Background()).Delivered }
	before = func() { // uses up the limit, so that the next request is queued
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 50*time.Millisecond)))
		for range 2 {
			if code := send(); code != http.StatusOK {
				log.Fatalf("status %d below the limit", code)
			}
			<-asked
		}
	}
	return before, func() {
		was := delivered()
		if code := send(); code != http.StatusAccepted {
			log.Fatalf("status %d over the limit", code)
		}
		<-asked
		for delivered() == was {
			time.Sleep(time.Millisecond)
		}
	}
}

// throughRLS sends a call of Envoy's rate limit protocol, with limits in memory.
func throughRLS() (before, walk func()) {
	_, set := setOf("domain: messaging\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1000}}\n")
	decider := rls.NewDecider(must(sluice.NewWithRules(memstore.New(), nil)), set, rls.Options{})
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	server := grpc.NewServer(rls.ServerOption())
	rls.Register(server, decider, rls.Bounds{Descriptors: 64})
	go func() { log.Fatal(server.Serve(listener)) }()
	client := pb.NewRateLimitServiceClient(must(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))))
	return nothing, func() {
		answer := must(client.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{
			Domain: "messaging",
			Descriptors: []*common.RateLimitDescriptor{
				{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}},
			},
		}))
		if answer.OverallCode != pb.RateLimitResponse_OK {
			log.Fatal(answer)
		}
	}
}

// throughRules changes a rule file and waits until its rules are active.
func throughRules() (before, walk func()) {
	text := "rules:\n  - {name: posts, match: {method: POST, path: /posts}, per: header:X-User, limit: %d/min}\n"
	file, _ := setOf(fmt.Sprintf(text, 1))
	live := ""
	watcher := must(rulefile.NewWatcher(rulefile.WatchConfig{Paths: []string{file}, OnReload: func(l *rulefile.LoadResult) { live = l.Digest }}))
	n := 1
	before = func() {
		n++
		must(0, os.WriteFile(file, fmt.Appendf(nil, text, n), 0o600))
	}
	return before, func() {
		was := live
		if must(0, watcher.Reload()); live == was {
			log.Fatal("the rules have not changed")
		}
	}
}
