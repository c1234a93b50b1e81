// Package telemetry tells a collector, by OTLP, what the service does: traces of requests, and metrics.
//
// Whatever the collector does, requests are answered as fast as without it: what it does not take in time is dropped. Keys
// and what they are made of are never told, rules and outcomes are.
//
// All methods of a nil [Traces] give back what they are given, so that nothing is on the way of a request when nothing is
// traced.
package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// Collector is where something is sent.
type Collector struct {
	Endpoint    string      // http://host:port, or https:// for TLS
	TLS         *tls.Config // nil: what the system trusts
	HeadersFile string      // "name: value" a line; empty: none
	Version     string      // of this program
}

// Bounds of what a collector sends, in bytes: what it did not take and why. It is logged.
const (
	maxAnswer        = 16 << 10
	maxAnswerHeaders = 16 << 10
)

// Times that a collector has.
const (
	sendTimeout = 5 * time.Second
	// flushTimeout is how long the end of the program may wait for what was not sent yet.
	flushTimeout = 3 * time.Second
)

// connect prepares a connection, which is made when it is needed.
func (c *Collector) connect() (*grpc.ClientConn, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("endpoint: write a URL such as http://localhost:4317")
	}
	host := u.Host
	if u.Port() == "" {
		host += ":4317"
	}
	creds := insecure.NewCredentials()
	if u.Scheme == "https" {
		if c.TLS == nil {
			c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		creds = credentials.NewTLS(c.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithMaxHeaderListSize(maxAnswerHeaders), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	}
	if c.HeadersFile != "" {
		if _, err := readHeaders(c.HeadersFile); err != nil {
			return nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(headers(c.HeadersFile)))
	}
	return grpc.NewClient("dns:///"+host, options...)
}

// open prepares a connection, and says what is told about this process.
func (c *Collector) open(ctx context.Context) (*grpc.ClientConn, *resource.Resource, error) {
	conn, err := c.connect()
	if err != nil {
		return nil, nil, err
	}
	about, err := c.resource(ctx)
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, about, nil
}

// Check returns the error that the collector's endpoint or files are the cause of, and does not connect.
func (c *Collector) Check() error {
	conn, err := c.connect() // when it is used
	if err != nil {
		return err
	}
	return conn.Close()
}

// headers is a file of headers, which are read for each call so that a token can be replaced.
type headers string

func (h headers) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return readHeaders(string(h))
}

// RequireTransportSecurity is left to who writes the URL: a collector on the same machine has none.
func (headers) RequireTransportSecurity() bool { return false }

// maxHeaders is how many bytes a file of headers may have.
const maxHeaders = 64 << 10

func readHeaders(file string) (map[string]string, error) {
	b, err := plainfile.Read(file, maxHeaders)
	if err != nil {
		return nil, fmt.Errorf("headers_file: %w", err)
	}
	all := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name = strings.ToLower(strings.TrimSpace(name)); !ok || name == "" {
			return nil, fmt.Errorf("headers_file: %s:%d: write name: value, such as authorization: Bearer …", file, n)
		}
		all[name] = strings.TrimSpace(value)
	}
	return all, lines.Err()
}

// resource is what is told about this process. The variables that OpenTelemetry has for it win.
func (c *Collector) resource(ctx context.Context) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "sluice"), attribute.String("service.version", c.Version)),
		resource.WithFromEnv())
}

// LogErrors logs errors of sending, and what the library reports of itself, for all collectors.
func LogErrors(log *slog.Logger) {
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("the collector did not take all traces or metrics: some are lost", "error", err)
	}))
}
