package envoyratelimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/internal/replyguard"
)

// openedStore is a store with its servers.
type openedStore struct {
	stores.Opened
	servers []storeServer // empty for the memory store
}

// openStore connects to the store of the settings. It returns an error if they are invalid, and one that wraps
// sluice.ErrUnavailable if the store is unavailable.
func openStore(ctx context.Context, s *Settings) (*openedStore, error) {
	switch s.Backend {
	case "memory":
		return &openedStore{Opened: stores.Memory()}, nil
	case "memcache":
		return openMemcache(ctx, s)
	}
	first, err := openRedis(ctx, s, &s.Redis, "REDIS_")
	if err != nil {
		return nil, err
	}
	both := &openedStore{first, []storeServer{{s.Redis.name(), first.Ping}}}
	if !s.UsePerSecond {
		return both, nil
	}
	second, err := openRedis(ctx, s, &s.PerSecond, "REDIS_PERSECOND_")
	if err != nil {
		first.Close()
		return nil, err
	}
	both.Store = &split{first.Store.(sluice.RemoteStore), second.Store.(sluice.RemoteStore)}
	both.Close = func() {
		first.Close()
		second.Close()
	}
	both.servers = append(both.servers, storeServer{s.PerSecond.name(), second.Ping})
	return both, nil
}

// name returns the addresses, without passwords.
func (s *RedisSettings) name() string {
	var addrs []string
	for addr := range strings.SplitSeq(s.URL, ",") {
		addr, _, _, _ := withoutScheme(strings.TrimSpace(addr))
		addrs = append(addrs, addr[strings.LastIndex(addr, "@")+1:])
	}
	return strings.Join(addrs, ",")
}

// keysBelow is the prefix of the keys of Sluice, after that of CACHE_KEY_PREFIX.
const keysBelow = "sluice:"

func openMemcache(ctx context.Context, s *Settings) (*openedStore, error) {
	m := &s.Memcache
	addrs := m.Addrs
	if m.SRV != "" {
		service, rest, _ := strings.Cut(strings.TrimPrefix(m.SRV, "_"), "._")
		proto, name, ok := strings.Cut(rest, ".")
		if !ok {
			return nil, errors.New("MEMCACHE_SRV: write _service._proto.name, such as _memcache._tcp.example.com")
		}
		_, found, err := net.DefaultResolver.LookupSRV(ctx, service, proto, name)
		if err != nil {
			return nil, fmt.Errorf("MEMCACHE_SRV: %w: %w", sluice.ErrUnavailable, err)
		}
		for _, f := range found {
			addrs = append(addrs, net.JoinHostPort(strings.TrimSuffix(f.Target, "."), fmt.Sprint(f.Port)))
		}
	}
	var secure *tls.Config
	if m.TLS {
		var err error
		if secure, err = clientTLS(m.Cert, m.Key, m.CA, m.SkipHostname); err != nil {
			return nil, fmt.Errorf("MEMCACHE_TLS…: %w", err)
		}
	}
	// It checks each server on separate connections. With the reference's keys it also counts.
	envoy := newEnvoyMemcached(addrs, secure, s.Counting.Prefix, s.Counting.ExpiryJitter)
	o := &openedStore{Opened: stores.Alone(envoy, envoy.close)}
	for _, server := range envoy.servers {
		o.servers = append(o.servers, storeServer{server.addr, server.ping})
	}
	if s.Counting.EnvoyKeys {
		return o, nil
	}
	store, err := stores.Memcached(ctx, addrs, secure, s.Counting.Prefix+keysBelow)
	if err != nil {
		return nil, fmt.Errorf("MEMCACHE_HOST_PORT: %w", err)
	}
	end := store.Close
	o.Opened = store
	o.Close = func() {
		end()
		envoy.close()
	}
	return o, nil
}

// split counts limits per second in a separate store.
type split struct{ others, seconds sluice.RemoteStore }

var _ sluice.RemoteStore = (*split)(nil)

func (s *split) Shards() int { return s.others.Shards() + s.seconds.Shards() }

func (s *split) Shard(t *sluice.Take) int {
	if perSecond(t) {
		return s.others.Shards() + s.seconds.Shard(t)
	}
	return s.others.Shard(t)
}

func perSecond(t *sluice.Take) bool { return t.Rule.Limit.Window == time.Second }

// Apply calls the stores of the takes concurrently: counting is never denied, so neither call depends on the other.
func (s *split) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	seconds := 0
	for i := range takes {
		if perSecond(&takes[i]) {
			seconds++
		}
	}
	switch seconds {
	case 0:
		return s.others.Apply(ctx, takes, out)
	case len(takes):
		return s.seconds.Apply(ctx, takes, out)
	}
	var (
		parts   [2][]sluice.Take
		answers [2][]sluice.Decision
	)
	part := func(t *sluice.Take) int {
		if perSecond(t) {
			return 1
		}
		return 0
	}
	for i := range takes {
		p := part(&takes[i])
		parts[p], answers[p] = append(parts[p], takes[i]), append(answers[p], sluice.Decision{})
	}
	done := make(chan error, 1)
	go func() { done <- s.seconds.Apply(ctx, parts[1], answers[1]) }()
	err := s.others.Apply(ctx, parts[0], answers[0])
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	var next [2]int
	for i := range takes {
		p := part(&takes[i])
		out[i] = answers[p][next[p]]
		next[p]++
	}
	return nil
}

// lazyStore is a store that is connected later. Until then its calls fail, so that fail modes decide.
type lazyStore struct {
	servers int
	store   atomic.Pointer[sluice.RemoteStore]
}

var (
	_        sluice.RemoteStore = (*lazyStore)(nil)
	errEarly                    = fmt.Errorf("store not connected since the start: %w", sluice.ErrUnavailable)
)

// servers returns the number of shards of the store, as far as it is known before the store is open.
func (s *Settings) servers() int {
	if s.Backend == "memcache" {
		return max(1, len(s.Memcache.Addrs))
	}
	n := 0
	for _, redis := range []*RedisSettings{&s.Redis, &s.PerSecond} {
		switch {
		case redis == &s.PerSecond && !s.UsePerSecond:
		case redis.Type == "CLUSTER" && !s.Counting.EnvoyKeys:
			n += 16 // shards that redisstore distinguishes in a Cluster
		default:
			n++
		}
	}
	return n
}

func (s *lazyStore) Shards() int { return s.servers }

func (s *lazyStore) Shard(t *sluice.Take) int {
	if store := s.store.Load(); store != nil {
		return (*store).Shard(t) // the limiter takes it modulo Shards
	}
	return 0
}

func (s *lazyStore) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if store := s.store.Load(); store != nil {
		return (*store).Apply(ctx, takes, out)
	}
	return errEarly
}

// flushDelay is the time for which the client collects commands before it writes them: much less than a round trip.
const flushDelay = 20 * time.Microsecond

func openRedis(ctx context.Context, s *Settings, redis *RedisSettings, prefix string) (stores.Opened, error) {
	option, err := redisOption(redis)
	if err != nil {
		return stores.Opened{}, fmt.Errorf("%sURL, %sTLS…: %w", prefix, prefix, err)
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return stores.Opened{}, fmt.Errorf("%sURL: %w: %w", prefix, sluice.ErrUnavailable, err)
	}
	if s.Counting.EnvoyKeys {
		store := &envoyKeys{client: client, prefix: s.Counting.Prefix, jitter: s.Counting.ExpiryJitter, now: time.Now}
		return stores.Alone(store, client.Close), nil
	}
	store, err := stores.Redis(ctx, client, s.Counting.Prefix+keysBelow)
	if err != nil {
		client.Close()
	}
	return store, err
}

// redisOption returns the options of the connection to a Redis.
func redisOption(s *RedisSettings) (o rueidis.ClientOption, err error) {
	o.DisableCache = true
	o.DisableRetry = true // a command that may have been counted is not repeated
	o.MaxFlushDelay = flushDelay
	o.Dialer.Timeout = s.Timeout
	o.ConnWriteTimeout = 2 * time.Second // a connection without reply for this long is closed
	o.Username, o.Password = userAndPassword(s.Auth)
	addrs := strings.Split(s.URL, ",")
	switch s.Type {
	case "SINGLE":
		addrs = []string{s.URL}
		o.ForceSingleClient = true
	case "SENTINEL":
		o.Sentinel.MasterSet, addrs = addrs[0], addrs[1:]
		o.Sentinel.Dialer.Timeout = s.Timeout
		o.Sentinel.Username, o.Sentinel.Password = userAndPassword(s.SentinelAuth)
		o.Sentinel.TopologyRefreshInterval = 5 * time.Second
	case "CLUSTER":
		o.ShuffleInit = true
		o.ClusterOption.ShardsRefreshInterval = time.Second
	}
	for _, addr := range addrs {
		addr, user, password, selects := withoutScheme(strings.TrimSpace(addr))
		if addr == "" {
			return o, errors.New("empty address: write host:port, or a path with REDIS_SOCKET_TYPE=unix")
		}
		if password != "" {
			o.Username, o.Password = user, password
		}
		o.SelectDB = max(o.SelectDB, selects)
		o.InitAddress = append(o.InitAddress, addr)
	}
	network := "tcp"
	if s.SocketType == "unix" {
		network = "unix"
	}
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, secure *tls.Config) (conn net.Conn, err error) {
		if secure != nil {
			conn, err = (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(ctx, network, addr)
		} else {
			conn, err = d.DialContext(ctx, network, addr)
		}
		if err != nil {
			return nil, err
		}
		return replyguard.Rueidis(conn, addr, nil), nil
	}
	if network == "unix" {
		return o, nil
	}
	if s.TLS {
		if o.TLSConfig, err = clientTLS(s.Cert, s.Key, s.CA, s.SkipHostname); err != nil {
			return o, err
		}
		o.Sentinel.TLSConfig = o.TLSConfig
	}
	return o, nil
}

// userAndPassword splits user:password; without a colon it is the password of the default user.
func userAndPassword(auth string) (user, password string) {
	if user, password, ok := strings.Cut(auth, ":"); ok {
		return user, password
	}
	return "", auth
}

// withoutScheme splits redis://user:password@host:port/1, which the reference accepts in place of host:port.
func withoutScheme(addr string) (host, user, password string, db int) {
	rest, ok := strings.CutPrefix(addr, "redis://")
	if !ok {
		return addr, "", "", 0
	}
	if o, err := rueidis.ParseURL("redis://" + rest); err == nil && len(o.InitAddress) > 0 {
		return o.InitAddress[0], o.Username, o.Password, o.SelectDB
	}
	return rest, "", "", 0
}

// clientTLS returns the TLS configuration of a client. Empty file names are allowed.
func clientTLS(cert, key, ca string, skipHostname bool) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" && key != "" {
		pair, err := pemfile.Pair(cert, key)
		if err != nil {
			return nil, err
		}
		// Read for each connection, because certificates are replaced while the service runs. On an error the previous one is used.
		var last atomic.Pointer[tls.Certificate]
		last.Store(&pair)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair, err := pemfile.Pair(cert, key); err == nil {
				last.Store(&pair)
			}
			return last.Load(), nil
		}
	}
	if ca != "" {
		var err error
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			c.RootCAs = x509.NewCertPool()
		}
		if err := pemfile.AddTo(c.RootCAs, ca); err != nil {
			return nil, err
		}
	}
	if skipHostname {
		c.InsecureSkipVerify = true // only the host name is not verified: the chain is verified below
		roots := c.RootCAs
		c.VerifyConnection = func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, between := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(between)
			}
			_, err := s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return c, nil
}
