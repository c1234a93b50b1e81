package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// benchTarget creates a target from a URL and options.
type benchTarget struct {
	o        *Options
	url      *url.URL
	full     loadgen.Pattern // URL with ranges
	patterns loadgen.Patterns
}

// protocol returns the protocol of the target: http, redis or rls.
func (a *benchTarget) protocol() string {
	switch a.url.Scheme {
	case "http", "https":
		return "http"
	case "redis", "rediss":
		return "redis"
	}
	return "rls"
}

// secure reports whether the target uses TLS.
func (a *benchTarget) secure() bool {
	return a.url.Scheme == "https" || a.url.Scheme == "rediss" || a.url.Scheme == "rlss"
}

// parse parses the URL. It returns an error for a host that is not loopback unless AllowRemote is set.
func (a *benchTarget) parse(ctx context.Context, target string) (err error) {
	switch scheme, _, _ := strings.Cut(target, "://"); scheme {
	case "http", "https", "redis", "rediss", "rls", "rlss":
	default:
		return errors.New("write rls://HOST:PORT, http://HOST:PORT/PATH or redis://HOST:PORT")
	}
	if a.o.Keys == 0 && strings.HasPrefix(target, "redis") {
		a.patterns.Keys = 100
	}
	if a.full, err = a.patterns.Parse(target); err != nil {
		return err
	}
	if a.url, err = url.Parse(a.full.Text(0)); err != nil {
		return err
	}
	if other, err := url.Parse(a.full.Text(a.patterns.Count() - 1)); err != nil || other.Host != a.url.Host {
		return errors.New("the address must be a single server: write ranges only after the host and port")
	}
	if a.url.Hostname() == "" {
		return errors.New("the URL has no host")
	}
	if a.protocol() != "http" {
		switch {
		case a.url.Port() == "":
			return fmt.Errorf("write the port too, such as %s://%s:8081", a.url.Scheme, a.url.Hostname())
		case a.url.User != nil:
			return errors.New("the URL contains a password, which other users of the host can see: write it to a file and use --password-file FILE")
		case strings.Trim(a.url.Path, "/") != "" || a.url.RawQuery != "":
			return fmt.Errorf("the URL has more than an address: write %s://%s", a.url.Scheme, a.url.Host)
		}
	}
	return a.local(ctx)
}

func (a *benchTarget) local(ctx context.Context) error {
	if a.o.AllowRemote {
		return nil
	}
	local, err := loadgen.Loopback(ctx, a.url)
	if err != nil {
		return err
	}
	if !local {
		return errors.New("not a loopback address: add --allow-remote if you may put load on this server")
	}
	return nil
}

// connect creates the target.
func (a *benchTarget) connect(ctx context.Context) (loadgen.Target, error) {
	secure, err := a.tls(ctx)
	if err != nil {
		return nil, err
	}
	if a.o.Pipeline > 1 && a.protocol() != "redis" {
		return nil, errors.New("--pipeline works only with redis: increase --concurrency instead")
	}
	var connect func() (loadgen.Target, error)
	switch a.protocol() {
	case "http":
		connect, err = a.http(ctx, secure)
	case "redis":
		connect, err = a.redis(ctx, secure)
	default:
		connect, err = a.rls(ctx, secure)
	}
	if err != nil {
		return nil, err
	}
	if a.o.Keys > 0 && !a.patterns.UsesKey() {
		return nil, errors.New("--keys needs {key} in a descriptor, URL, header, body or key")
	}
	return connect()
}

func (a *benchTarget) tls(ctx context.Context) (*tls.Config, error) {
	if !a.secure() {
		if a.o.CA != "" {
			return nil, fmt.Errorf("--tls-ca: %s:// does not use TLS", a.url.Scheme)
		}
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.url.Hostname()}
	if a.o.CA == "" {
		return cfg, nil
	}
	var err error
	if cfg.RootCAs, err = pemfile.StreamPool(ctx, a.o.CA); err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	return cfg, nil
}

func (a *benchTarget) rls(ctx context.Context, secure *tls.Config) (func() (loadgen.Target, error), error) {
	cfg := loadgen.RLS{URL: a.url, TLS: secure, Connections: a.o.Connections, Domain: a.o.Domain}
	if a.o.Cost != 1 {
		cfg.Hits = uint32(a.o.Cost)
	}
	if cfg.Domain == "" || len(a.o.Descriptors) == 0 {
		return nil, errors.New("no domain or descriptor given: write, for example, --domain demo --descriptor 'remote_address=10.0.0.{1..100}'")
	}
	for _, text := range a.o.Descriptors {
		entries, err := descriptorPairs(text)
		if err != nil {
			return nil, err
		}
		var d []loadgen.Entry
		for _, e := range entries {
			var patterns [2]loadgen.Pattern
			for i := range e {
				if patterns[i], err = a.patterns.Parse(e[i]); err != nil {
					return nil, err
				}
			}
			d = append(d, loadgen.Entry{Key: patterns[0], Value: patterns[1]})
		}
		cfg.Descriptors = append(cfg.Descriptors, d)
	}
	return func() (loadgen.Target, error) { return loadgen.NewRLS(ctx, cfg) }, nil
}

// descriptorPairs parses key=value,key=value.
func descriptorPairs(text string) (all [][2]string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--descriptor %q: write key=value, or key=value,key=value for several entries", text)
		}
		all = append(all, [2]string{key, value})
	}
	return all, nil
}

func (a *benchTarget) redis(ctx context.Context, secure *tls.Config) (func() (loadgen.Target, error), error) {
	cfg := loadgen.RESP{URL: a.url, TLS: secure, Burst: a.o.Burst, Count: a.o.Count, Period: a.o.Period, Quantity: a.o.Cost}
	if cfg.Burst < 0 || cfg.Count < 1 || cfg.Period < 1 {
		return nil, errors.New("--burst, --count and --period: write positive numbers, such as --burst 10 --count 100 --period 60")
	}
	if a.o.PasswordFile != "" {
		b, err := plainfile.ReadStream(ctx, a.o.PasswordFile, maxPassword)
		if err != nil {
			return nil, fmt.Errorf("--password-file: %w", err)
		}
		cfg.Password = string(bytes.TrimRight(b, "\r\n"))
	}
	var err error
	cfg.Key, err = a.patterns.Parse(a.o.Key)
	return func() (loadgen.Target, error) { return loadgen.NewRESP(ctx, cfg) }, err
}

func (a *benchTarget) http(ctx context.Context, secure *tls.Config) (func() (loadgen.Target, error), error) {
	cfg := loadgen.HTTP{URL: a.url, Full: a.full, TLS: secure, Callers: a.o.Callers, Method: a.o.Method}
	body, err := a.body(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.Method == "" {
		cfg.Method = http.MethodGet
		if body != "" {
			cfg.Method = http.MethodPost
		}
	}
	if !httpguts.ValidHeaderFieldName(cfg.Method) { // methods and header names have the same syntax
		return nil, fmt.Errorf("-X %q: write a method, such as POST", cfg.Method)
	}
	typed := false
	for _, line := range a.o.Headers {
		name, value, ok := strings.Cut(line, ":")
		name, value = http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("-H %q: write 'Name: value'", line)
		}
		h := loadgen.Header{Name: name}
		if h.Value, err = a.patterns.Parse(value); err != nil {
			return nil, err
		}
		cfg.Headers = append(cfg.Headers, h)
		typed = typed || name == "Content-Type"
	}
	if cfg.Body, err = a.patterns.Parse(body); err != nil {
		return nil, err
	}
	if !typed && json.Valid([]byte(cfg.Body.Text(0))) {
		plain, _ := (&loadgen.Patterns{}).Parse("application/json")
		cfg.Headers = append(cfg.Headers, loadgen.Header{Name: "Content-Type", Value: plain})
	}
	return func() (loadgen.Target, error) { return loadgen.NewHTTP(ctx, cfg) }, nil
}

// maxPassword is the maximum size in bytes of the file of --password-file.
const maxPassword = 1 << 20

// maxBody is the maximum size in bytes of the file of --body.
const maxBody = 64 << 20

// body returns the body of --body or, if there are descriptors, a request of Sluice's check API.
func (a *benchTarget) body(ctx context.Context) (string, error) {
	if len(a.o.Descriptors) == 0 {
		file, ok := strings.CutPrefix(a.o.Body, "@")
		if !ok {
			return a.o.Body, nil
		}
		b, err := plainfile.ReadStream(ctx, file, maxBody)
		if err != nil {
			return "", fmt.Errorf("--body: %w", err)
		}
		return string(b), nil
	}
	if a.o.Body != "" || a.o.Domain == "" {
		return "", errors.New("no request body: write --domain and --descriptor for Sluice's check API, or --body for other APIs")
	}
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	ask := struct {
		Domain      string    `json:"domain"`
		Descriptors [][]entry `json:"descriptors"`
		Cost        int64     `json:"cost"`
	}{Domain: a.o.Domain, Cost: a.o.Cost}
	for _, text := range a.o.Descriptors {
		pairs, err := descriptorPairs(text)
		if err != nil {
			return "", err
		}
		var d []entry
		for _, p := range pairs {
			d = append(d, entry{p[0], p[1]})
		}
		ask.Descriptors = append(ask.Descriptors, d)
	}
	b, err := json.Marshal(ask)
	return string(b), err
}
