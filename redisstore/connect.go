package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"

	"github.com/sluiceproject/sluice/internal/goroutines"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

const (
	// flushDelay is how long the client collects requests before it writes them: much less than a round trip, and long
	// enough to write the requests of many callers at once.
	flushDelay     = 20 * time.Microsecond
	connectTimeout = time.Second
	// readTimeout is how long a server may send nothing while a reply is due before the connection is closed.
	readTimeout = 2 * time.Second
	// pingAfter is how long a connection may be without a reply before the server is pinged. It bounds the wait for a
	// reply without a deadline, such as the client's wait for a sentinel.
	pingAfter = time.Second
	// topologyRefreshInterval is how often the client queries the primaries without being notified of a change.
	// Sentinels notify clients, but a notification can be lost.
	topologyRefreshInterval = 5 * time.Second
	// maxMoves is the maximum number of redirections that a call follows when a hash slot has moved.
	maxMoves = 3
	// reconnectDelay is the pause between attempts to connect a store that never was connected, plus up to as much
	// jitter. misconfigRetryDelay is the pause after a configuration error.
	reconnectDelay      = 200 * time.Millisecond
	misconfigRetryDelay = 5 * time.Second
)

// link is a connected client.
type link struct {
	client Commander
	own    rueidis.Client // closed with the store; nil: the client is the caller's
	dialer *dialer        // of the store's own client, else nil
}

// reconnect closes the connections, so that the next commands use new ones. It does nothing in a Cluster, where a wrong
// server redirects the client to the right one.
func (l *link) reconnect() {
	if l.dialer != nil && !l.client.Cluster() {
		l.dialer.drop(time.Now())
	}
}

// discard closes all connections of the store's own client, because on one of them requests and replies do not match.
func (s *Store) discard() {
	if l := s.link.Load(); l != nil && l.dialer != nil {
		l.dialer.closeAll(false)
	}
}

// connector connects a store to its servers, immediately or in the background.
type connector struct {
	option rueidis.ClientOption
	dialer *dialer

	work    sync.WaitGroup   // attempts in the background
	calls   goroutines.Group // calls that may outlive their callers; see runWithDeadline
	closing chan struct{}
	mu      sync.Mutex // guards the fields below
	busy    bool       // attempts are being made in the background
	closed  bool
	failed  error // error of the last attempt
}

// options returns the options of the client for Config.URL.
func (c *Config) options() (rueidis.ClientOption, error) {
	option, err := rueidis.ParseURL(c.URL)
	if err != nil {
		// The error is not wrapped, because the URL in it may contain a password.
		return option, fmt.Errorf("redisstore: %w: Config.URL is not of the form redis://user:password@host:6379/0, "+
			"rediss://… with TLS or unix://…", ErrConfig)
	}
	switch {
	case c.TLS != nil && option.TLSConfig == nil:
		return option, fmt.Errorf("redisstore: %w: Config.TLS is set, but Config.URL does not use TLS: use rediss://", ErrConfig)
	case c.TLS != nil:
		option.TLSConfig = c.TLS.Clone()
		option.TLSConfig.MinVersion = max(option.TLSConfig.MinVersion, tls.VersionTLS12)
	case option.TLSConfig != nil && !option.TLSConfig.InsecureSkipVerify:
		option.TLSConfig.ServerName = "" // each server's name, not that of the first
	}
	if c.PasswordFile != "" {
		if option.Password != "" || option.Sentinel.MasterSet != "" {
			return option, fmt.Errorf("redisstore: %w: Config.PasswordFile cannot be used with a password in Config.URL, or with Sentinel", ErrConfig)
		}
		option.AuthCredentialsFn = credentials(option.Username, c.PasswordFile)
		if _, err := option.AuthCredentialsFn(rueidis.AuthCredentialsContext{}); err != nil {
			return option, fmt.Errorf("redisstore: %w", err)
		}
	}
	option.DisableCache = true
	option.DisableRetry = true // commands that may have been executed must not be resent
	option.MaxFlushDelay = flushDelay
	option.AlwaysPipelining = true // otherwise the deadline of a single caller becomes a deadline of the connection
	option.Dialer.Timeout = connectTimeout
	option.Dialer.KeepAlive = pingAfter // by default the client does not ping sentinels
	option.ConnWriteTimeout = readTimeout
	option.ClusterOption.MaxMovedRedirections = maxMoves
	option.ClusterOption.ShardsRefreshInterval = topologyRefreshInterval
	option.Sentinel.TopologyRefreshInterval = topologyRefreshInterval
	option.Sentinel.Dialer, option.Sentinel.TLSConfig = option.Dialer, option.TLSConfig
	return option, nil
}

// maxPassword is the maximum size of a password file in bytes.
const maxPassword = 64 << 10

// credentials returns a function that reads the password for every new connection, so that the password can be rotated.
func credentials(user, file string) func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		text, err := plainfile.Read(file, maxPassword)
		if err != nil {
			return rueidis.AuthCredentials{}, fmt.Errorf("%w: Config.PasswordFile: %w", ErrConfig, err)
		}
		return rueidis.AuthCredentials{Username: user, Password: strings.TrimRight(string(text), "\r\n")}, nil
	}
}

// Check returns the error that [Open] would return for the URL, the files and their combination. It does not connect.
func (c Config) Check() error {
	if c.URL == "" {
		return nil
	}
	_, err := c.options()
	return err
}

// connect tries to connect once. It returns only configuration errors, because any other failure may end while the
// store is in use.
func (s *Store) connect(c *Config) error {
	option, err := c.options()
	if err != nil {
		return err
	}
	s.connector.dialer = newDialer("tcp")
	if strings.HasPrefix(c.URL, "unix:") {
		s.connector.dialer.network = "unix"
	}
	if option.Sentinel.MasterSet != "" {
		s.connector.dialer.keep = option.InitAddress
	}
	option.DialCtxFn = s.hints.watch(s.connector.dialer.dial)
	s.connector.option = option
	s.connector.closing = make(chan struct{})
	if err := unavailable(s.tryConnect()); errors.Is(err, ErrConfig) {
		s.connector.dialer.close()
		return err
	}
	return nil
}

// connectLater returns the reason why there is no connection. The first call starts connecting in the background.
func (s *Store) connectLater() error {
	c := &s.connector
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return sluice.ErrClosed
	}
	if !c.busy {
		c.busy = true
		c.work.Go(s.keepTrying)
	}
	return fmt.Errorf("%w: %w", errNotYet, c.failed)
}

// keepTrying tries to connect until it succeeds or the store is closed.
func (s *Store) keepTrying() {
	for {
		err := s.tryConnect()
		if err == nil {
			return
		}
		wait := reconnectDelay + rand.N(reconnectDelay)
		if v, _ := classify(err); v == misconfigured {
			wait = misconfigRetryDelay
		}
		select {
		case <-time.After(wait):
		case <-s.connector.closing:
			return
		}
	}
}

// tryConnect tries to connect and records the result.
func (s *Store) tryConnect() error {
	c := &s.connector
	client, err := rueidis.NewClient(c.option)
	err = asError(err)
	if v, _ := classify(err); err != nil && v == mayHaveRun {
		if reason := c.dialer.reason(); reason != nil && !errors.Is(err, reason) {
			err = fmt.Errorf("%w: %w", reason, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	switch {
	case err == nil && c.closed:
		client.Close()
	case err == nil:
		s.use(&link{client: direct{client}, own: client, dialer: c.dialer})
	}
	return err
}

// warmCommands is the number of commands after which each of the client's connections to a server has almost certainly
// been used once. The client has four and picks one at random.
const warmCommands = 48

// warm opens the client's connections and loads the script, because both take longer than the store timeout.
func (s *Store) warm(ctx context.Context) error {
	l, err := s.connected()
	if err != nil {
		return unavailable(err)
	}
	if !l.client.Cluster() {
		if err := s.loadScript(ctx, l.client, s.loads.Load()); err != nil {
			return unavailable(err)
		}
		for range warmCommands {
			if err := s.do(ctx, "ZCARD", s.nodesKey()); err != nil {
				return err
			}
		}
		return nil
	}
	nodes, err := l.client.Primaries(ctx)
	if err != nil {
		return unavailable(err)
	}
	for _, node := range nodes {
		if _, err := node.Do(ctx, "SCRIPT", "LOAD", script); err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// use makes l the store's link. Settings that depend on the kind of servers are set first, before other goroutines can
// load the link.
func (s *Store) use(l *link) {
	s.names.tagged = l.client.Cluster()
	s.batcher.disabled = s.names.tagged
	s.hints.init(s.names.tagged)
	s.link.Store(l)
}

// Close closes the store's connections. Calls in flight fail. It waits for attempts to connect, for batched runs, and
// for calls whose callers have already returned. Calls on a client of the caller end when that client ends them;
// go-redis, for example, waits for its read timeout unless its ContextTimeoutEnabled is set.
func (s *Store) Close() {
	defer s.connector.calls.Close()
	defer s.batcher.close()
	s.connector.mu.Lock()
	if !s.connector.closed && s.connector.closing != nil {
		close(s.connector.closing)
	}
	s.connector.closed = true
	s.connector.mu.Unlock()
	l := s.link.Load() // final: a closed store is never connected
	if s.connector.dialer != nil {
		defer s.connector.dialer.close()
		if l == nil {
			s.connector.dialer.close() // an attempt may be waiting for a server that sends nothing
		}
	}
	s.connector.work.Wait()
	if l != nil && l.own != nil {
		// The client waits for calls in flight and for a query to a sentinel, which may never reply.
		late := time.AfterFunc(readTimeout, l.dialer.close)
		defer late.Stop()
		l.own.Close()
	}
}

// Ping returns nil if the servers reply, else an error that explains why not. A store that [Open] returned need not be
// connected.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.serverMicros(ctx)
	return err
}
