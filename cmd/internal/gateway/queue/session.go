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

// session is a connection to the streams. After faults of a disk there is a new one: JetStream does not write again to a
// stream that it once could not write.
type session struct {
	server *server.Server // nil: it is outside
	conn   *nats.Conn
	js     jetstream.JetStream

	items, states, results jetstream.Stream
	watches                []jetstream.ConsumeContext
	index                  *index
	maxItem                int

	silentSince atomic.Pointer[error] // why a server outside does not answer; nil: it does

	life  context.Context // ends with the session
	end   context.CancelFunc
	place *place // of the server in this process

	itemsReceived     atomic.Uint64 // items that the consumer received
	unreadableAtStart uint64        // items that the stream counts and did not deliver at the start
	receivedAtSweep   uint64        // at the last sweep
	stalledCount      int           // sweeps since an item was received, though there were some
}

const (
	// requestTimeout is how long the server may take for one answer.
	requestTimeout = 5 * time.Second
	// roomForHeaders is how much larger messages are than what is in them.
	roomForHeaders = 64 << 10
)

// connect starts the server in this process, or connects to the one outside. It returns early when ctx ends.
func (q *Queue) connect(ctx context.Context) (*session, error) {
	s := &session{index: newIndex(q)}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, s.end)()
	options := []nats.Option{
		nats.Name("sluice"), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second / 4), nats.Timeout(requestTimeout),
		nats.PingInterval(requestTimeout), nats.MaxPingsOutstanding(2), // a server that says nothing is left
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			q.log.Warn("the queue's connection reports a fault", "error", err)
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

// embed starts a server that listens nowhere.
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
	return fmt.Errorf("queue: %s: JetStream does not start: %s", q.cfg.Directory, cmp.Or(log.fatal, "it does not say why"))
}

// outside is how a cluster is connected to.
func (c *Config) outside(ctx context.Context) (options []nats.Option, err error) {
	dialer := &replyguard.NATS{Context: ctx, Timeout: requestTimeout, Secure: c.CA != "" || c.Cert != ""}
	for text := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil {
			return nil, errors.New("queue: url: not of the form nats://host:4222") // it may have a password in it
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

// servers are the addresses of the URLs, which may have passwords in them.
func (c *Config) servers() string {
	var all []string
	for text := range strings.SplitSeq(c.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil {
			all = append(all, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(all, ",")
}

// createStreams makes what is not there yet.
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
	// Three copies, but of a server by itself, which says so. A cluster that has not three servers yet is waited for: with
	// fewer copies now there would be fewer for ever.
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
		err = fmt.Errorf("three servers with JetStream must be there when the queue is made: %w", err)
	}
	return stream, wrap(err)
}

// codeNotClustered is what a server answers that is in no cluster and is to keep several copies.
const codeNotClustered = 10074

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("queue: %w", err)
}

// close lets go of everything. A server outside that does not answer is not waited for.
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

// serverLog has the server write to our log. What it merely mentions is left out.
type serverLog struct {
	log   *slog.Logger
	fatal string // why it did not start
	// broke is told of a disk that cannot be written: who waits for an answer then would wait in vain.
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
