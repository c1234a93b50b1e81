package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
)

// The script, in parts that are numbered in their order. It never changes while the process runs: values reach it as
// KEYS and ARGV and in no other way.
//
//go:embed lua/*.lua
var parts embed.FS

var (
	script    = readScript()
	scriptSHA = func() string {
		sum := sha1.Sum([]byte(script))
		return hex.EncodeToString(sum[:])
	}()
)

func readScript() string {
	names, err := fs.Glob(parts, "lua/*.lua") // in lexical order
	if err != nil {
		panic(err) // they are compiled in
	}
	var all strings.Builder
	for _, n := range names {
		text, err := parts.ReadFile(n)
		if err != nil {
			panic(err)
		}
		all.Write(text)
	}
	return all.String()
}

// mostLoads is how often a call has the script loaded: once, unless somebody flushes scripts all the time.
const mostLoads = 3

// run runs the script. A server that does not know it has not run it, so it is then loaded and called again; nothing
// else is tried twice, because it may have been charged.
func (s *Store) run(ctx context.Context, keys []string, packed string) (rueidis.RedisMessage, error) {
	for tries := 0; ; tries++ {
		loaded := s.loads.Load()
		answer, err := s.evalsha(ctx, keys, packed)
		if !isNoScript(err) || tries == mostLoads {
			return answer, unavailable(err)
		}
		if s.names.tagged { // each node of a Cluster has scripts of its own: let the keys choose it
			command := s.client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(packed).Build()
			answer, err = s.client.Do(ctx, command).ToMessage()
			return answer, unavailable(err)
		}
		if err := s.loadScript(ctx, loaded); err != nil {
			return answer, unavailable(err)
		}
	}
}

func (s *Store) evalsha(ctx context.Context, keys []string, packed string) (rueidis.RedisMessage, error) {
	command := s.client.B().Evalsha().Sha1(scriptSHA).Numkeys(int64(len(keys))).Key(keys...).Arg(packed).Build()
	return s.client.Do(ctx, command).ToMessage()
}

func isNoScript(err error) bool {
	failed, ok := rueidis.IsRedisErr(err)
	return ok && failed.IsNoScript()
}

// loadScript loads the script, once for all callers that found it missing at the same time.
func (s *Store) loadScript(ctx context.Context, before int64) error {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.loads.Load() != before {
		return nil // somebody has, since the caller found it missing
	}
	if err := s.client.Do(ctx, s.client.B().ScriptLoad().Script(script).Build()).Error(); err != nil {
		return err
	}
	s.loads.Add(1)
	return nil
}

// unavailable marks an error as the server's, so that a limiter's fail modes act on it.
func unavailable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rueidis.ErrClosing):
		return fmt.Errorf("redisstore: %w", sluice.ErrClosed)
	}
	return fmt.Errorf("redisstore: %w: %w", sluice.ErrUnavailable, err)
}
