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

	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/internal/replyguard"
)

// flushDelay is how long the client gathers requests before it writes them: much less than a round trip.
const flushDelay = 20 * time.Microsecond

// redisOption says how to connect to a Redis.
func redisOption(s *RedisSettings) (o rueidis.ClientOption, err error) {
	o.DisableCache = true
	o.DisableRetry = true // what may have been counted is not sent again
	o.MaxFlushDelay = flushDelay
	o.Dialer.Timeout = s.Timeout
	o.ConnWriteTimeout = 2 * time.Second // without an answer for that long a connection is given up
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
			return o, errors.New("an address is empty: write host:port, or a path with REDIS_SOCKET_TYPE=unix")
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

// userAndPassword takes user:password apart; without a colon it is the password of the default user.
func userAndPassword(auth string) (user, password string) {
	if user, password, ok := strings.Cut(auth, ":"); ok {
		return user, password
	}
	return "", auth
}

// withoutScheme takes redis://user:password@host:port/1 apart, which the reference takes where it takes host:port.
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

// clientTLS makes the configuration of a client. Files that are not named are not needed.
func clientTLS(cert, key, ca string, skipHostname bool) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" && key != "" {
		pair, err := pemfile.Pair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("the certificate %s and the key %s: %w", cert, key, err)
		}
		// Read for each connection, since certificates are replaced while the service runs. The last good one stays.
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
		c.InsecureSkipVerify = true // the name alone is skipped: the chain is verified here
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
