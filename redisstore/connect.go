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
	// flushDelay is how long the client gathers requests before it writes: much less than a round trip, and enough to
	// write those of many callers at once.
	flushDelay     = 20 * time.Microsecond
	connectTimeout = time.Second
	// readTimeout is how long a server that has something to answer may say nothing before its connection is given up.
	readTimeout = 2 * time.Second
	// pingAfter is for how long a connection brings no reply before the server is pinged. It is what ends the wait for a
	// reply without a deadline, as of the client for a sentinel's.
	pingAfter = time.Second
	// topologyRefreshInterval is how often the client asks who the primaries are, without being told that they have changed. Sentinels
	// tell, but a message can be lost.
	topologyRefreshInterval = 5 * time.Second
	// maxMoves is how often a call follows a slot that has moved.
	maxMoves = 3
	// reconnectDelay is between attempts to connect of a store that never was, with as much again of jitter; misconfigRetryDelay is
	// if it is the configuration that is wrong.
	reconnectDelay      = 200 * time.Millisecond
	misconfigRetryDelay = 5 * time.Second
)

// link is a client that has been connected.
type link struct {
	client Commander
	own    rueidis.Client // ours to close; nil: the caller's
	dialer *dialer        // of our own
}

// reconnect has the next commands use new connections. In a Cluster nothing is gained by it: who asks the wrong server
// is told the right one.
func (l *link) reconnect() {
	if l.dialer != nil && !l.client.Cluster() {
		l.dialer.drop(time.Now())
	}
}

// discard closes all connections of our own: on one of them requests and replies do not match.
func (s *Store) discard() {
	if l := s.link.Load(); l != nil && l.dialer != nil {
		l.dialer.closeAll(false)
	}
}

// connector connects a store to its servers, at once or when it can.
type connector struct {
	option rueidis.ClientOption
	dialer *dialer

	work    sync.WaitGroup   // attempts in the background
	calls   goroutines.Group // calls whose callers may have left; see runWithDeadline
	closing chan struct{}
	mu      sync.Mutex // guards the fields below
	busy    bool       // attempts are made
	closed  bool
	failed  error // why the last attempt did
}

// options are those of the client that Config.URL asks for.
func (c *Config) options() (rueidis.ClientOption, error) {
	option, err := rueidis.ParseURL(c.URL)
	if err != nil {
		// The URL may have a password in it, and so may the error.
		return option, fmt.Errorf("redisstore: %w: Config.URL is not of the form redis://user:password@host:6379/0, "+
			"rediss://… with TLS or unix://…", ErrConfig)
	}
	switch {
	case c.TLS != nil && option.TLSConfig == nil:
		return option, fmt.Errorf("redisstore: %w: Config.TLS is set, but Config.URL is without TLS: let it begin with rediss://", ErrConfig)
	case c.TLS != nil:
		option.TLSConfig = c.TLS.Clone()
		option.TLSConfig.MinVersion = max(option.TLSConfig.MinVersion, tls.VersionTLS12)
	case option.TLSConfig != nil && !option.TLSConfig.InsecureSkipVerify:
		option.TLSConfig.ServerName = "" // each server's own, not the first one's
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
	option.DisableRetry = true // what may have run is not sent again
	option.MaxFlushDelay = flushDelay
	option.AlwaysPipelining = true // else the time of a caller who is alone is a deadline of the connection
	option.Dialer.Timeout = connectTimeout
	option.Dialer.KeepAlive = pingAfter // by default the client does not ping sentinels
	option.ConnWriteTimeout = readTimeout
	option.ClusterOption.MaxMovedRedirections = maxMoves
	option.ClusterOption.ShardsRefreshInterval = topologyRefreshInterval
	option.Sentinel.TopologyRefreshInterval = topologyRefreshInterval
	option.Sentinel.Dialer, option.Sentinel.TLSConfig = option.Dialer, option.TLSConfig
	return option, nil
}

// maxPassword is how many bytes a file with a password may have.
const maxPassword = 64 << 10

// credentials reads the password when a connection is made, so that it can be changed.
func credentials(user, file string) func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		text, err := plainfile.Read(file, maxPassword)
		if err != nil {
			return rueidis.AuthCredentials{}, fmt.Errorf("%w: Config.PasswordFile: %w", ErrConfig, err)
		}
		return rueidis.AuthCredentials{Username: user, Password: strings.TrimRight(string(text), "\r\n")}, nil
	}
}

// Check returns the error that [Open] would return for the URL, the files and their combination, and does not connect.
func (c Config) Check() error {
	if c.URL == "" {
		return nil
	}
	_, err := c.options()
	return err
}

// connect tries to connect once. Only a fault of the configuration is an error: whatever else is wrong may end while
// the store is in use.
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

// connectLater returns why there is no connection. From the first call on one is tried for beside the callers.
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

// keepTrying tries to connect until it has, or the store is closed.
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

// tryConnect tries to connect, and notes how that went.
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

// warmCommands are so many that each of a client's connections to a server, four of which it uses in turn as it draws
// them, has almost certainly had one.
const warmCommands = 48

// warm makes the client's connections and loads the script, for which a decision has too little time.
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

// use has the store send its commands there. What depends on the kind of servers is set before anybody can find the link.
func (s *Store) use(l *link) {
	s.names.tagged = l.client.Cluster()
	s.batcher.disabled = s.names.tagged
	s.hints.init(s.names.tagged)
	s.link.Store(l)
}

// Close ends the store's connections. Calls in flight fail. It waits for what the store has begun: attempts to connect, runs
// for several callers, and calls whose callers have left. Those on a client that is the caller's end when it ends
// them: go-redis, for one, waits for its own read timeout unless its ContextTimeoutEnabled is set.
func (s *Store) Close() {
	defer s.connector.calls.Close()
	defer s.batcher.close()
	s.connector.mu.Lock()
	if !s.connector.closed && s.connector.closing != nil {
		close(s.connector.closing)
	}
	s.connector.closed = true
	s.connector.mu.Unlock()
	l := s.link.Load() // for good: nothing is connected once it is closed
	if s.connector.dialer != nil {
		defer s.connector.dialer.close()
		if l == nil {
			s.connector.dialer.close() // an attempt may wait for a server that is silent
		}
	}
	s.connector.work.Wait()
	if l != nil && l.own != nil {
		// The client lets calls in flight end, and waits while it asks a sentinel, which may be silent.
		late := time.AfterFunc(readTimeout, l.dialer.close)
		defer late.Stop()
		l.own.Close()
	}
}

// Ping reports whether the servers can be asked, and if not, why. A store that is open need not be connected.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.serverMicros(ctx)
	return err
}
