// Command rulefile is a small web server whose limits are in a rule file, which can be changed while it runs.
//
//	go run ./examples/rulefile
//	curl -i http://127.0.0.1:8080/report
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
)

func main() {
	path := flag.String("rules", "examples/rulefile/rules.yaml", "rule file or directory")
	flag.Parse()

	// The first load must succeed. Later an invalid file is reported and the previous rules stay active.
	watcher, err := rulefile.NewWatcher(rulefile.WatchConfig{
		Paths:          []string{*path},
		ReloadOnSIGHUP: true, // kill -HUP reloads at once
		OnReload:       func(l *rulefile.LoadResult) { log.Println("rules reloaded:", l.Digest) },
		OnError:        func(err error) { log.Println("rules reload failed, previous rules stay active:", err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(watcher.Run(context.Background())) }()

	// Usage is in the store, so that it is preserved when the rules change.
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a long report") })
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})

	server := &http.Server{
		Addr: "127.0.0.1:8080", Handler: httplimit.RulesMiddleware(limiter, watcher.Set)(mux), ReadHeaderTimeout: 5 * time.Second,
	}
	log.Println("listening on http://" + server.Addr)
	log.Fatal(server.ListenAndServe())
}
