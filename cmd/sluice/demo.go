package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

func demoCommand() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a small limited API on this machine, with curl commands to try on it",
		Long: "Run a small API on this machine that the Sluice library limits, and print curl commands\n" +
			"that show a request that is allowed and one that is answered 429 Too Many Requests.\n" +
			"It needs no configuration, keeps nothing, and ends with ctrl-C.",
		Example: "  sluice demo\n  sluice demo --listen 127.0.0.1:9000",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return demo(c.Context(), listen, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address to listen on")
	return c
}

func demo(ctx context.Context, listen string, stdout io.Writer) error {
	handler, err := demoAPI()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("demo: %w: choose another address with --listen 127.0.0.1:PORT", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
	fmt.Fprintf(stdout, demoGuide, listener.Addr())

	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

const demoGuide = `A small API is at http://%[1]s. In another terminal:

  # allowed, with what remains in the headers
  curl -i http://%[1]s/hello

  # 5 requests a minute for each address: the sixth is answered 429
  for i in 1 2 3 4 5 6; do curl -si http://%[1]s/hello | head -1; done
  curl -i http://%[1]s/hello

  # only wrong passwords count, 3 a minute for each user (the right one is "sesame")
  for i in 1 2 3 4; do curl -si -u ada:wrong http://%[1]s/login | head -1; done

ctrl-C ends it.
`

// demoAPI is what an API developer would write.
func demoAPI() (http.Handler, error) {
	store := memstore.New()
	hello, err := sluice.New(store, "hello-per-ip", sluice.PerMinute(5))
	if err != nil {
		return nil, err
	}
	logins, err := sluice.New(store, "logins-per-user", sluice.PerMinute(3).With(sluice.SlidingLog))
	if err != nil {
		return nil, err
	}
	failed := func(status int) bool { return status == http.StatusUnauthorized }
	limitLogins := httplimit.Middleware(logins, httplimit.ByBasicAuthUser(), httplimit.ChargeIf(failed))

	mux := http.NewServeMux()
	mux.Handle("GET /hello", httplimit.Middleware(hello, httplimit.ByIP())(http.HandlerFunc(sayHello)))
	mux.Handle("GET /login", limitLogins(http.HandlerFunc(login)))
	return mux, nil
}

func sayHello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func login(w http.ResponseWriter, r *http.Request) {
	if _, password, _ := r.BasicAuth(); password != "sesame" {
		http.Error(w, "wrong password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome")
}
