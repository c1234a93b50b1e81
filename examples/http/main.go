// Command http is a small web server with a limit per client address.
//
//	go run ./examples/http
//	curl -i http://127.0.0.1:8080/
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

func main() {
	// A burst of five requests, then one every two seconds.
	limiter, err := sluice.New(memstore.New(), "hello", sluice.PerMinute(30).WithBurst(5))
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a long report") })
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})

	limit := httplimit.Middleware(limiter,
		// The address of the peer. Behind a proxy: httplimit.ByIP(httplimit.TrustedProxies(prefixes...)).
		httplimit.ByIP(),
		// Health checks are not counted.
		httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
		// A report costs as much as three other requests.
		httplimit.Cost(func(r *http.Request) int64 {
			if r.URL.Path == "/report" {
				return 3
			}
			return 1
		}),
		// Further options: DenialHandler for a custom response, Headers for other header formats, LimitFor for a limit that
		// depends on the request, ChargeIf to charge only certain statuses.
	)

	server := &http.Server{Addr: "127.0.0.1:8080", Handler: limit(mux), ReadHeaderTimeout: 5 * time.Second}
	log.Println("listening on http://" + server.Addr)
	log.Fatal(server.ListenAndServe())
}
