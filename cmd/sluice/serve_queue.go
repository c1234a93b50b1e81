package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/sluiceproject/sluice/internal/queue"
)

// openQueue opens the queue of requests that are kept, if there is to be one. deliver sends them on; nil: others do.
func (s *service) openQueue(deliver func(ctx context.Context, it *queue.Item, begin func() error) queue.Outcome) error {
	c := &s.cfg.Queue
	if !c.On() {
		return nil
	}
	key, err := queueKey(c.KeyFile)
	if err != nil {
		return fmt.Errorf("queue.key_file: %w", err)
	}
	s.queue, err = queue.Open(queue.Config{
		Directory: c.Directory, URL: c.URL, CredentialsFile: c.CredentialsFile, CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key,
		Name: c.Name, SealKey: key, MaxBytes: c.MaxBytes, MaxCount: c.MaxCount, MaxItem: int(c.MaxItem), MaxResults: c.MaxResults,
		KeepDead: c.KeepDead, Workers: int(c.Workers), Timeout: c.Timeout, Drain: s.cfg.Drain.Timeout, Deliver: deliver, Log: s.log,
	})
	return err
}

// runQueue delivers what is kept.
func (s *service) runQueue(ctx context.Context) {
	if s.queue != nil {
		_ = s.queue.Run(ctx)
	}
}

func (s *service) closeQueue() {
	if s.queue == nil {
		return
	}
	if err := s.queue.Close(); err != nil {
		s.log.Error("the queue was not closed", "error", err)
	}
}

// queueKey reads the key that what is kept is encrypted with; nil: it is not.
func queueKey(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) != queue.KeySize {
		return nil, fmt.Errorf("%s must hold %d hexadecimal digits: make it with openssl rand -hex %d", path, 2*queue.KeySize, queue.KeySize)
	}
	return key, nil
}
