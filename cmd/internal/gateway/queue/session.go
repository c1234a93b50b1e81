package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/replyguard"
)

// session is a connection to the streams. After a disk error a new one is opened, because JetStream does not write again to a
// stream after a failed write.
type session struct {
	server *server.Server // nil with an external server
	conn   *nats.Conn
	js     jetstream.JetStream

	items, states, results jetstream.Stream
	watches                []jetstream.ConsumeContext
	index                  *index
	maxItem                int

	silentSince atomic.Pointer[error] // why an external server is unavailable; nil: it is available

	life  context.Context // done at the end of the session
	end   context.CancelFunc
	place *place // of the embedded server

	itemsReceived     atomic.Uint64 // number of items received by the consumer
	unreadableAtStart uint64        // number of items of the stream that were not delivered at the start
	receivedAtSweep   uint64        // itemsReceived at the last sweep
	stalledCount      int           // consecutive sweeps without a received item, despite stored items
}

const (
	// requestTimeout is the timeout of a request to the server.
	requestTimeout = 5 * time.Second
	// roomForHeaders is the maximum overhead of a message in bytes.
	roomForHeaders = 64 << 10
)

// connect starts the embedded server or connects to the external one. It returns early when ctx is done.
func (q *Queue) connect(ctx context.Context) (*session, error) {
	s := &session{index: newIndex(q)}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, s.end)()
	options := []nats.Option{
		nats.Name("sluice"), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second / 4), nats.Timeout(requestTimeout),
		nats.PingInterval(requestTimeout), nats.MaxPingsOutstanding(2), // closes the connection to an unresponsive server
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			q.log.Warn("queue connection error", "error", err)
		}),
	}
	if q.cfg.URL == "" {
		if err := s.embed(q); err != nil {
			return nil, err
		}
		options = append(options, nats.InProcessServer(s.server))
	} else {
		more, err := q.cfg.outside(s.life)
		if err != nil {
			s.end()
			return nil, err
		}
		options = append(options, more...)
	}
	var err error
	if s.conn, err = nats.Connect(q.cfg.URL, options...); err != nil && q.shared() {
		err = fmt.Errorf("queue: %s: %w", q.cfg.servers(), err)
	}
	if err == nil {
		s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(requestTimeout))
	}
	if err == nil {
		err = s.createStreams(ctx, q)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	s.maxItem = min(q.cfg.MaxItem, int(s.conn.MaxPayload())-roomForHeaders)
	return s, nil
}

// embed starts the embedded server, which has no listener.
func (s *session) embed(q *Queue) error {
	o := &server.Options{
		ServerName: "sluice", DontListen: true, NoSigs: true, JetStream: true, DisableJetStreamBanner: true,
		StoreDir: q.place.own, SyncAlways: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: math.MaxInt64 / 4,
		MaxPayload: int32(q.cfg.MaxItem + roomForHeaders),
	}
	srv, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	log := &serverLog{log: q.log, broke: func(text string) { q.sessionFailed(s, errors.New(text)) }}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	s.server, s.place = srv, q.place
	if log.fatal == "" && srv.ReadyForConnections(2*requestTimeout) && srv.JetStreamEnabled() {
		return nil
	}
	s.close()
	return fmt.Errorf("queue: %s: JetStream does not start: %s", q.cfg.Directory, cmp.Or(log.fatal, "unknown reason"))
}

// outside returns the options of the connection to external servers.
func (c *Config) outside(ctx context.Context) (options []nats.Option, err error) {
	dialer := &replyguard.NATS{Context: ctx, Timeout: requestTimeout, Secure: c.CA != "" || c.Cert != ""}
	for text := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil {
			return nil, errors.New("queue: url: not of the form nats://host:4222") // without the URL, which may contain a password
		}
		dialer.Secure = dialer.Secure || u.Scheme == "tls"
		if name := u.Hostname(); dialer.Name == "" && net.ParseIP(name) == nil {
			dialer.Name = name
		}
	}
	options = append(options, nats.SetCustomDialer(dialer), nats.SkipHostLookup())
	if c.CredentialsFile != "" {
		if err := plainfile.Check(c.CredentialsFile); err != nil {
			return nil, fmt.Errorf("queue: credentials_file: %w", err)
		}
		options = append(options, nats.UserCredentials(c.CredentialsFile))
	}
	t, err := pemfile.Client(c.CA, c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if t == nil {
		return options, nil
	}
	dialer.TLS = t
	return append(options, nats.Secure(t)), nil
}

// servers returns the addresses of the URLs, without passwords.
func (c *Config) servers() string {
	var all []string
	for text := range strings.SplitSeq(c.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil {
			all = append(all, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(all, ",")
}

// createStreams creates missing streams.
func (s *session) createStreams(ctx context.Context, q *Queue) error {
	name := func(what string) string { return q.cfg.Name + "-" + what }
	for _, c := range []struct {
		to  *jetstream.Stream
		cfg jetstream.StreamConfig
	}{
		{&s.items, jetstream.StreamConfig{
			Name: name("items"), Subjects: []string{q.subject("item", "*")}, Discard: jetstream.DiscardNew,
			MaxBytes: q.cfg.MaxBytes, MaxMsgs: q.cfg.MaxCount,
		}},
		{&s.states, jetstream.StreamConfig{
			Name: name("states"), Subjects: []string{q.subject("state", "*")}, Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1,
		}},
		{&s.results, jetstream.StreamConfig{
			Name: name("results"), Subjects: []string{q.subject("result", "*")}, Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1,
			MaxBytes: q.cfg.MaxResults, AllowMsgTTL: true,
		}},
	} {
		c.cfg.Storage, c.cfg.AllowDirect, c.cfg.Metadata = jetstream.FileStorage, true, map[string]string{keyMark: q.cipher.mark}
		var err error
		if *c.to, err = s.createStream(ctx, q, c.cfg); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) createStream(ctx context.Context, q *Queue, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	old, err := s.js.Stream(ctx, cfg.Name)
	switch {
	case err == nil:
		now := old.CachedInfo().Config
		if err := q.cipher.check(cfg.Name, now.Metadata); err != nil {
			return nil, err
		}
		cfg.Replicas = now.Replicas
		stream, err := s.js.UpdateStream(ctx, cfg)
		return stream, wrap(err)
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, wrap(err)
	}
	// Three replicas, or one on a server without cluster. A cluster with fewer than three servers is an error and is retried,
	// because the number of replicas would not be increased later.
	if cfg.Replicas = 3; q.cfg.URL == "" {
		cfg.Replicas = 1
	}
	stream, err := s.js.CreateStream(ctx, cfg)
	var refused *jetstream.APIError
	switch {
	case err == nil:
		return stream, nil
	case !errors.As(err, &refused) || cfg.Replicas == 1:
	case refused.ErrorCode == codeNotClustered:
		cfg.Replicas = 1
		stream, err = s.js.CreateStream(ctx, cfg)
	default:
		err = fmt.Errorf("three servers with JetStream are required to create the queue: %w", err)
	}
	return stream, wrap(err)
}

// codeNotClustered is the error code of a server without cluster for a stream with several replicas.
const codeNotClustered = 10074

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("queue: %w", err)
}

// close closes the connection and the embedded server. It does not wait for an unavailable external server.
func (s *session) close() {
	impatient := time.AfterFunc(time.Second, s.end)
	for _, w := range s.watches {
		w.Stop()
	}
	if s.conn != nil {
		s.conn.Close()
	}
	impatient.Stop()
	s.end()
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
}

// serverLog writes warnings and errors of the server to the log of the queue.
type serverLog struct {
	log   *slog.Logger
	fatal string // why the server did not start
	// broke is called with the error of a failed disk write, because requests to the server would then time out.
	broke func(text string)
}

func (l *serverLog) Noticef(string, ...any)        {}
func (l *serverLog) Debugf(string, ...any)         {}
func (l *serverLog) Tracef(string, ...any)         {}
func (l *serverLog) Warnf(format string, a ...any) { l.log.Warn("queue: " + fmt.Sprintf(format, a...)) }

func (l *serverLog) Errorf(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	l.log.Error("queue: " + text)
	if strings.Contains(text, "critical write error") {
		l.broke(text)
	}
}

func (l *serverLog) Fatalf(format string, a ...any) { l.fatal = fmt.Sprintf(format, a...) }
