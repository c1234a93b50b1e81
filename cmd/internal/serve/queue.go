package serve

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// openQueue opens the durable queue, or returns nil if it is disabled. Without a gateway this process does not deliver; others
// do. With dry, the configuration is only checked.
func openQueue(of *config.Config, log *slog.Logger, dry bool) (*queue.Queue, error) {
	c := &of.Queue
	if !c.On() {
		return nil, nil
	}
	key, err := queueKey(c.EncryptionKeyFile)
	if err != nil {
		return nil, fmt.Errorf("queue.encryption_key_file: %w", err)
	}
	cfg := queue.Config{
		Directory: c.Directory, URL: c.URL, CredentialsFile: c.CredentialsFile, CA: c.TLS.CAFile, Cert: c.TLS.CertFile, Key: c.TLS.KeyFile,
		Name: c.StreamPrefix, EncryptionKey: key, MaxBytes: c.MaxTotalSize, MaxCount: c.MaxItems,
		MaxKeyBytes: config.Share(c.MaxTotalSizePerKey, c.MaxTotalSize), MaxKeyCount: config.Share(c.MaxItemsPerKey, c.MaxItems),
		MaxItem: int(c.MaxItemSize), MaxResults: c.MaxResultsSize,
		DeadLetterTTL: c.DeadLetterTTL, Workers: int(c.Workers), Timeout: c.DeliveryTimeout, Drain: of.Drain.Timeout,
		Delivers: of.Gateway.Address != config.Off, Log: log,
	}
	if dry {
		return nil, inSetting("queue", "queue", queue.Check(cfg))
	}
	q, err := queue.Open(cfg)
	return q, inSetting("queue", "queue", err)
}

// closeQueue closes the queue after the last delivery.
func closeQueue(q *queue.Queue, log *slog.Logger) {
	if err := q.Close(); err != nil {
		log.Error("queue close failed", "error", err)
	}
}

// queueKey reads the encryption key, or returns nil for no encryption.
func queueKey(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := plainfile.Read(path, maxSecret)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) != queue.KeySize {
		return nil, fmt.Errorf("%s must hold %d hexadecimal digits: make it with openssl rand -hex %d", path, 2*queue.KeySize, queue.KeySize)
	}
	return key, nil
}

// adminQueue returns the queue functions of the admin API, or nil without a queue.
func adminQueue(q *queue.Queue) *adminapi.Queue {
	if q == nil {
		return nil
	}
	return &adminapi.Queue{
		Counts: func(ctx context.Context) adminmsg.QueueCounts {
			c := q.Counts(ctx)
			return adminmsg.QueueCounts{
				Queued: c.Queued, Delivering: c.Delivering, Dead: c.Dead, Ended: c.Ended, Bytes: c.Bytes, OldestAgeSeconds: c.Oldest.Seconds(), Up: c.Up,
			}
		},
		List: func(ctx context.Context, name, after string, n int) ([]adminmsg.QueueItem, string, error) {
			state, _ := queue.ParseState(name)
			found, next, err := q.List(ctx, state, after, n)
			items := make([]adminmsg.QueueItem, len(found))
			for i := range found {
				items[i] = adminItem(found[i])
			}
			return items, next, adminQueueError(err)
		},
		Get: adminItemFunc(q.Get), Cancel: adminItemFunc(q.Cancel), Requeue: adminItemFunc(q.Requeue),
	}
}

// adminItemFunc converts a queue function to one of the admin API.
func adminItemFunc(do func(context.Context, string) (*queue.Status, error)) func(context.Context, string) (adminmsg.QueueItem, error) {
	return func(ctx context.Context, id string) (adminmsg.QueueItem, error) {
		st, err := do(ctx, id)
		if err != nil {
			return adminmsg.QueueItem{}, adminQueueError(err)
		}
		return adminItem(st), nil
	}
}

func adminQueueError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, queue.ErrNotFound):
		return adminapi.ErrNoItem
	case errors.Is(err, queue.ErrDelivering), errors.Is(err, queue.ErrDone), errors.Is(err, queue.ErrNotDead):
		return fmt.Errorf("%w: %w", adminapi.ErrItemState, err)
	case errors.Is(err, queue.ErrUnavailable):
		return fmt.Errorf("%w: %w", adminapi.ErrQueueDown, err)
	}
	return err
}

func adminItem(st *queue.Status) adminmsg.QueueItem {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	it := adminmsg.QueueItem{
		ID: st.ID, State: st.State.String(), Rule: st.Rule, RawKey: st.Key, Position: st.Position, Attempts: st.Attempts, Size: st.Size,
		Accepted: st.Accepted.UTC(), Changed: at(st.Changed), NextAttempt: at(st.Next), Expires: at(st.Expires), Error: st.Error,
	}
	if r := st.Result; r != nil {
		it.Result = &adminmsg.QueueResult{Status: r.Status, Header: r.Header, Truncated: r.Truncated}
		if utf8.Valid(r.Body) {
			it.Result.Body = string(r.Body)
		} else {
			it.Result.BodyBase64 = r.Body
		}
	}
	return it
}

// queueMetrics returns the source of queue metrics, or nil without a queue.
func queueMetrics(q *queue.Queue) func() metrics.Queue {
	if q == nil {
		return nil
	}
	return func() metrics.Queue {
		c := q.Counts(context.Background())
		return metrics.Queue{
			Up: c.Up, Queued: c.Queued, Delivering: c.Delivering, Dead: c.Dead, Bytes: c.Bytes, Oldest: c.Oldest,
			Totals: map[string]int64{
				"accepted": c.Accepted, "rejected": c.Rejected, "delivered": c.Delivered, "failed": c.Failed, "dead_lettered": c.DeadLettered,
				"denied": c.Denied, "cancelled": c.Cancelled, "requeued": c.Requeued, "lost": c.Lost,
			},
		}
	}
}
