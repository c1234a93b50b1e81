package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"io/fs"
	"strings"
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

// maxLoads is how often a call has the script loaded: once, unless somebody flushes scripts all the time.
const maxLoads = 3

// run runs the script. A server that does not know it has not run it, so it is then loaded and called again. What else is
// certain not to have run is sent once more; nothing that may have been charged is.
func (s *Store) run(ctx context.Context, keys []string, packed string) (value, error) {
	answer, err := again(ctx, s, func(c Commander) (value, error) { return s.runOn(ctx, c, keys, packed) })
	return answer, unavailable(err)
}

func (s *Store) runOn(ctx context.Context, c Commander, keys []string, packed string) (value, error) {
	for tries := 0; ; tries++ {
		loaded := s.loads.Load()
		answer, err := eval(ctx, c, false, keys, packed)
		if err == nil {
			return answer, nil
		}
		if v, _ := classify(err); v != unknownScript || tries == maxLoads {
			return answer, err
		}
		if s.names.tagged { // each node of a Cluster has scripts of its own: let the keys choose it
			return eval(ctx, c, true, keys, packed)
		}
		if err := s.loadScript(ctx, c, loaded); err != nil {
			return answer, err
		}
	}
}

// loadScript loads the script, once for all callers that found it missing at the same time.
func (s *Store) loadScript(ctx context.Context, c Commander, before int64) error {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.loads.Load() != before {
		return nil // somebody has, since the caller found it missing
	}
	if _, err := c.Do(ctx, "SCRIPT", "LOAD", script); err != nil {
		return err
	}
	s.loads.Add(1)
	return nil
}
