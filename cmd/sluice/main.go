// Command sluice is the command line of Sluice. It checks, tests, explains and documents rule files, runs the rate limit service,
// the gateway and a demo, and operates a running service.
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

// arguments returns the command-line arguments. If the program is named ratelimit, for example by a link, it runs the ratelimit
// command.
func arguments(args []string) []string {
	if len(args) > 0 && filepath.Base(args[0]) == ratelimitName {
		return []string{ratelimitName}
	}
	return args[min(1, len(args)):]
}
