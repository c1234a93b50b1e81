// Package telemetry exports traces and metrics of the service to an OpenTelemetry collector by OTLP.
//
// A slow or unavailable collector never delays requests: data that it does not accept in time is dropped. Spans contain
// rules and results, but no keys and no values that keys are made of.
//
// All methods of a nil [Traces] return their argument, so that disabled tracing adds nothing to a request.
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

// Collector is the configuration of an OTLP collector.
type Collector struct {
	Endpoint    string      // http://host:port, or https:// for TLS
	TLS         *tls.Config // nil: the root certificates of the system
	HeadersFile string      // one "name: value" per line; empty: no headers
	Version     string      // version of Sluice
}

// Maximum sizes of responses of a collector, in bytes. They contain rejected data and errors, and are logged.
const (
	maxAnswer        = 16 << 10
	maxAnswerHeaders = 16 << 10
)

// Timeouts of calls to a collector.
const (
	sendTimeout = 5 * time.Second
	// flushTimeout bounds the export of remaining data during shutdown.
	flushTimeout = 3 * time.Second
)

// connect returns a client whose connection is established on first use.
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

// open returns a client and the resource that describes this process.
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

// Check returns an error if the endpoint or a file is invalid. It does not connect.
func (c *Collector) Check() error {
	conn, err := c.connect() // connects on first use only
	if err != nil {
		return err
	}
	return conn.Close()
}

// headers is the path of a file with headers. It is read for each call, so that a token can be replaced.
type headers string

func (h headers) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return readHeaders(string(h))
}

// RequireTransportSecurity reports whether the headers require TLS. They do not: the scheme of the endpoint decides, because
// a local collector needs no TLS.
func (headers) RequireTransportSecurity() bool { return false }

// maxHeaders is the maximum size of a headers file in bytes.
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

// resource returns the description of this process. OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME take precedence.
func (c *Collector) resource(ctx context.Context) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "sluice"), attribute.String("service.version", c.Version)),
		resource.WithFromEnv())
}

// LogErrors logs export errors and messages of the OpenTelemetry library, for all collectors.
func LogErrors(log *slog.Logger) {
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("telemetry export failed", "error", err)
	}))
}
