// Command rulefile is a small web server whose limits are in a file. Change the file while it runs.
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

	// A program does not start without its rules. Later a bad file is reported and changes nothing.
	watcher, err := rulefile.NewWatcher(rulefile.WatchConfig{
		Paths:          []string{*path},
		ReloadOnSIGHUP: true, // kill -HUP has it look at once
		OnReload:       func(l *rulefile.LoadResult) { log.Println("new rules are live:", l.Digest) },
		OnError:        func(err error) { log.Println("the last good rules stay live:", err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(watcher.Run(context.Background())) }()

	// What was counted is in the store and not in the rules: it survives a change.
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
