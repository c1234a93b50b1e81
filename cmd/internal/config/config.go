package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// Config is what a file says. [Default] is what none says.
type Config struct {
	GRPC    GRPC
	HTTP    HTTP
	Admin   Admin
	RESP    RESP
	Gateway Gateway
	Drain   Drain
	Store   Store
	Rules   Rules
	RLS     RLS
	Auth    Auth
	Check   Check
	Queue   Queue
	Metrics Metrics
	Logging Logging
	Tracing Tracing

	Authentication Authentication
}

// Off in place of an address is no listener.
const Off = "off"

// Share returns what one address or key may have of a maximum: set, or a quarter of the maximum if set is 0.
func Share(set, most int64) int64 {
	if set > 0 {
		return set
	}
	return max(1, most/4)
}

// TLS are the files of a listener's certificates.
type TLS struct{ Cert, Key, ClientCA string }

// GRPC is the listener for Envoy's protocol.
type GRPC struct {
	Address         string
	TLS             TLS
	MaxConnections  int64
	MaxPerAddress   int64 // connections; 0: a quarter of MaxConnections
	MaxStreams      int64
	MaxHeaderBytes  int64
	MaxMessageBytes int64
	MaxAge          time.Duration
	MaxAgeGrace     time.Duration
	Reflection      bool
}

// HTTP is the listener for checks, proxies and health checks.
type HTTP struct {
	Address        string
	TLS            TLS
	MaxConnections int64
	MaxPerAddress  int64 // connections; 0: a quarter of MaxConnections
}

// Admin is the listener for operators, and who they are.
type Admin struct {
	Address        string
	TLS            TLS
	MaxConnections int64
	TokenFile      string
	Hosts          []string
}

// Drain is how the service ends.
type Drain struct{ Wait, Timeout time.Duration }

// Kinds of stores.
const (
	Memory    = "memory"
	Redis     = "redis"
	Memcached = "memcached"
)

// Store is where counts are kept.
type Store struct {
	Kind         string
	URL          string   // of Redis
	PasswordFile string   // of Redis
	Servers      []string // of Memcached
	TLS          StoreTLS
	Prefix       string
	Bytes        int64  // of memory
	Snapshot     string // of memory
	Budget       time.Duration
	Instances    int64 // that share it; 0: not said
}

// StoreTLS are the files for connections to a store's servers, or a collector.
type StoreTLS struct{ CA, Cert, Key string }

// Rules are where the rules are.
type Rules struct {
	Paths        []string
	MergeDomains bool
	ChargeDenied bool
}

// RLS is what is said to Envoy, and what it may ask.
type RLS struct {
	MaxDescriptors, MaxEntries, MaxBytes int64
	Overrides, NegativeHits              bool
	Shadow, Quota                        bool
	Metadata                             bool
	Headers                              Headers
	Clients                              map[string][]string // domains by the name in a client's certificate; nil: all
}

// Headers are names of headers that tell about limits.
type Headers struct {
	Enabled                 bool
	Limit, Remaining, Reset string
}

// Auth is what is said to proxies that ask whether a request may pass.
type Auth struct{ MaxWait time.Duration }

// Check is the HTTP check API.
type Check struct{ SecretFile string }

// Metrics is where Prometheus asks, and where metrics are sent.
type Metrics struct {
	Enabled bool
	OnHTTP  bool // also on the listener for health checks
	Public  bool // without a token
	OTLP    OTLPMetrics
}

// Logging is how logs are written.
type Logging struct {
	Level, Format    string
	Denials          string // Off or sampled
	DenialsPerSecond int64
	Keys             string // masked, plain or none
	SecretFile       string
}

// Collector is where something is sent by OTLP. Without an endpoint it is not.
type Collector struct {
	Endpoint    string
	HeadersFile string
	TLS         StoreTLS
}

// OTLPMetrics is how metrics are sent.
type OTLPMetrics struct {
	Collector
	Interval time.Duration
}

// Tracing is how requests are traced.
type Tracing struct {
	Collector
	Sample float64
}

// Default is the configuration without a file.
func Default() Config {
	var c Config
	d := decoder{to: &c}
	for i := range settings {
		if text := settings[i].Default; text != "" {
			root, _ := strictyaml.Parse([]byte(text))
			settings[i].read(&d, root)
		}
	}
	if d.Count() > 0 {
		faults, _ := d.Faults()
		panic(fmt.Sprint("config: a default is at fault: ", faults)) // the tests look at each
	}
	return c
}

// Load reads a file. The error joins all faults, each a [*rules.Error]. Paths in it are taken from the file's directory.
func Load(path string) (Config, error) {
	data, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	return Read(path, data)
}

// Read reads the content of a file, as [Load] does.
func Read(path string, data []byte) (Config, error) {
	if IsEmpty(data) {
		// What a full disk leaves: the defaults have none of the rules that this process is to apply.
		return Config{}, &rules.Error{Pos: rules.Position{File: path}, Msg: "the file is empty: write settings, or {} for the defaults"}
	}
	c, err := Parse(path, data, os.LookupEnv)
	if err != nil {
		return Config{}, err
	}
	c.resolve(filepath.Dir(path))
	return c, nil
}

func readFile(path string) ([]byte, error) {
	fault := func(format string, args ...any) error {
		return &rules.Error{Pos: rules.Position{File: path}, Msg: fmt.Sprintf(format, args...)}
	}
	data, err := plainfile.Read(path, strictyaml.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault("there is no such file")
	case errors.Is(err, plainfile.ErrTooLarge):
		return nil, fault("the file has more than %d bytes: split it", strictyaml.MaxBytes)
	case err != nil:
		return nil, fault("cannot be read: %v", errors.Unwrap(err))
	}
	return data, nil
}

// Parse reads the content of a file. Variables are looked up with env.
func Parse(name string, data []byte, env func(string) (string, bool)) (parsed Config, err error) {
	defer panics.Recover(func(e *panics.Error) {
		parsed, err = Config{}, errors.Join(&rules.Error{Pos: rules.Position{File: name}, Msg: e.Error(), Err: e})
	})
	c := Default()
	d := decoder{to: &c, env: env}
	root, found := strictyaml.Parse(data)
	if root != nil && root.Kind != strictyaml.Null {
		d.section(root, tree, "")
		if len(found) == 0 && d.Count() == 0 {
			d.check(root)
		}
	}
	faults, more := d.Faults()
	found = append(found, faults...)
	if len(found) == 0 {
		return c, nil
	}
	var all []error
	for _, f := range found {
		all = append(all, &rules.Error{Pos: rules.Position{File: name, Line: f.Line, Column: f.Column}, Msg: f.Msg})
	}
	if more > 0 {
		all = append(all, &rules.Error{Pos: rules.Position{File: name}, Msg: fmt.Sprintf("there are %d more faults", more)})
	}
	return Config{}, errors.Join(all...)
}

// resolve takes relative paths from a directory.
func (c *Config) resolve(directory string) {
	paths := []*string{
		&c.GRPC.TLS.Cert, &c.GRPC.TLS.Key, &c.GRPC.TLS.ClientCA, &c.HTTP.TLS.Cert, &c.HTTP.TLS.Key, &c.HTTP.TLS.ClientCA,
		&c.Admin.TLS.Cert, &c.Admin.TLS.Key, &c.Admin.TLS.ClientCA, &c.Admin.TokenFile,
		&c.RESP.TLS.Cert, &c.RESP.TLS.Key, &c.RESP.TLS.ClientCA, &c.RESP.PasswordFile,
		&c.Store.Snapshot, &c.Store.PasswordFile, &c.Store.TLS.CA, &c.Store.TLS.Cert, &c.Store.TLS.Key,
		&c.Check.SecretFile,
		&c.Queue.Directory, &c.Queue.CredentialsFile, &c.Queue.TLS.CA, &c.Queue.TLS.Cert, &c.Queue.TLS.Key, &c.Queue.KeyFile,
		&c.Logging.SecretFile,
	}
	for _, to := range []*Collector{&c.Tracing.Collector, &c.Metrics.OTLP.Collector} {
		paths = append(paths, &to.HeadersFile, &to.TLS.CA, &to.TLS.Cert, &to.TLS.Key)
	}
	paths = append(paths, c.Gateway.files()...)
	paths = append(paths, c.Gateway.certificateFiles()...)
	paths = append(paths, c.Authentication.files()...)
	for i := range c.Rules.Paths {
		paths = append(paths, &c.Rules.Paths[i])
	}
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(directory, *p)
		}
	}
}

// IsEmpty reports whether a file is empty or has only comments.
func IsEmpty(data []byte) bool {
	root, found := strictyaml.Parse(data)
	return len(found) == 0 && (root == nil || root.Kind == strictyaml.Null)
}

// IsServiceConfig reports whether a file is a service's configuration. A rule file has a list of rules, or no section that a
// configuration has.
func IsServiceConfig(data []byte) bool {
	root, _ := strictyaml.Parse(data)
	if root == nil || root.Kind != strictyaml.Mapping {
		return false
	}
	for name := range tree.below {
		if n := root.Field(name); n != nil && (name != "rules" || n.Kind == strictyaml.Mapping) {
			return true
		}
	}
	return false
}
