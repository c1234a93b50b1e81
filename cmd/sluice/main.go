// Command sluice runs Sluice from the command line: it checks, tests, explains and documents rules, shows a limited
// API at work, serves Envoy and others, and stands before APIs as a gateway.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	_ "time/tzdata" // zones of calendar limits, on systems that have none

	"google.golang.org/grpc/grpclog"

	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Other libraries use the package log, which the log of a service replaces.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, logwriter.Errors{Library: "grpc"}))
	os.Exit(run(ctx, arguments(os.Args), os.Stdout, os.Stderr))
}

// arguments are those of the program. Under the name of Envoy's service, which a link may give it, it is that service.
func arguments(args []string) []string {
	if len(args) > 0 && filepath.Base(args[0]) == ratelimitName {
		return []string{ratelimitName}
	}
	return args[min(1, len(args)):]
}
