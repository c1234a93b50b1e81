package queue

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// itemHeaderField of an item's message has its itemHeader, encrypted.
const itemHeaderField = "Sluice-Outline"

// follow reads what there is, and whatever comes.
func (s *session) follow(ctx context.Context, q *Queue) error {
	err := s.watch(ctx, q, s.states, false, func(id string, seq uint64, m jetstream.Msg) error {
		b, err := q.cipher.decrypt(m.Subject(), m.Data())
		if err != nil {
			return err
		}
		r, err := decodeItemState(b)
		if err == nil {
			s.index.onState(id, seq, &r)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = s.watch(ctx, q, s.items, true, func(id string, seq uint64, m jetstream.Msg) error {
		s.itemsReceived.Add(1)
		o, err := q.headerOf(m.Subject(), m.Headers().Get(itemHeaderField))
		if err == nil {
			s.index.onItem(id, seq, o)
		} else {
			s.index.onUnreadable(id)
		}
		return err
	})
	if err != nil || !q.shared() {
		return err
	}
	_, err = s.conn.Subscribe(q.subject("finished", "*"), func(m *natsMsg) {
		s.index.drop(idOf(m.Subject))
	})
	return err
}

func (q *Queue) headerOf(subject, header string) (itemHeader, error) {
	b, err := base64.StdEncoding.DecodeString(header)
	if err == nil {
		b, err = q.cipher.decrypt(subject, b)
	}
	if err != nil {
		return itemHeader{}, err
	}
	return decodeItemHeader(b)
}

// watch has each message of a stream seen, and returns when all that were there have been.
func (s *session) watch(ctx context.Context, q *Queue, of jetstream.Stream, headers bool, see func(id string, seq uint64, m jetstream.Msg) error) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	consumer, err := of.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: headers})
	if err != nil {
		return wrap(err)
	}
	var seen atomic.Uint64
	caught := make(chan struct{}, 1)
	watch, err := consumer.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			return
		}
		if err := see(idOf(m.Subject()), meta.Sequence.Stream, m); err != nil {
			q.log.Error("the queue holds something that cannot be read: it is left where it is", "id", idOf(m.Subject()), "error", err)
		}
		seen.Store(meta.Sequence.Stream)
		if meta.NumPending == 0 {
			select {
			case caught <- struct{}{}:
			default:
			}
		}
	}, jetstream.PullMaxMessages(1000))
	if err != nil {
		return wrap(err)
	}
	s.watches = append(s.watches, watch)
	info, err := of.Info(ctx)
	if err != nil {
		return wrap(err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	// The last may have been removed meanwhile or be unreadable, and then none is the last: ask now and then.
	for ask := time.NewTicker(time.Second / 4); ; {
		select {
		case <-caught:
			ask.Stop()
			return nil
		case <-ask.C:
			next := seen.Load() + 1
			info, err := of.Info(ctx)
			if err == nil && info.State.Msgs > 0 && next <= info.State.LastSeq {
				_, err = of.GetMsg(ctx, next, jetstream.WithGetMsgSubject(">"))
				if !errors.Is(err, jetstream.ErrMsgNotFound) {
					continue
				}
				err = nil
			}
			if err == nil {
				ask.Stop()
				return nil
			}
		case <-ctx.Done():
			ask.Stop()
			return errors.New("queue: what is kept could not be read in time")
		}
	}
}

// loadTimeout is how long reading everything may take.
const loadTimeout = 5 * time.Minute

// idOf is the last part of a subject.
func idOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
