package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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

// evaluator is a Commander that has a quicker way to run the script.
type evaluator interface {
	eval(ctx context.Context, whole bool, keys []string, packed string) (value, error)
}

// eval runs the script, sent whole or named by its digest.
func eval(ctx context.Context, c Commander, whole bool, keys []string, packed string) (value, error) {
	if quick, ok := c.(evaluator); ok {
		return quick.eval(ctx, whole, keys, packed)
	}
	command := make([]string, 0, len(keys)+4)
	if whole {
		command = append(command, "EVAL", script)
	} else {
		command = append(command, "EVALSHA", scriptSHA)
	}
	command = append(command, strconv.Itoa(len(keys)))
	command = append(append(command, keys...), packed)
	reply, err := c.Do(ctx, command...)
	if err != nil {
		return value{}, err
	}
	return valueOf(reply)
}

func (c direct) eval(ctx context.Context, whole bool, keys []string, packed string) (value, error) {
	var command rueidis.Completed
	if whole {
		command = c.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(packed).Build()
	} else {
		command = c.B().Evalsha().Sha1(scriptSHA).Numkeys(int64(len(keys))).Key(keys...).Arg(packed).Build()
	}
	message, err := c.Client.Do(ctx, command).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return value{}, asError(err)
	}
	return valueOfMessage(&message)
}

// unavailable marks an error as the server's, so that a limiter's fail modes act on it, and says what to do.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	v, advice := classify(err)
	if v == closed {
		return fmt.Errorf("redisstore: %w", sluice.ErrClosed)
	}
	if advice != "" {
		err = fmt.Errorf("%w (%s)", err, advice)
	}
	if v == misconfigured && !errors.Is(err, ErrConfig) {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if errors.Is(err, sluice.ErrUnavailable) {
		return fmt.Errorf("redisstore: %w", err)
	}
	return fmt.Errorf("redisstore: %w: %w", sluice.ErrUnavailable, err)
}

// retries says how many commands may be sent again: one for each ten that were sent, and a few to begin with. More would
// be load on top of trouble.
type retries struct {
	spent atomic.Int64 // tenths; may be negative
}

const (
	retryCost = 10
	mostSaved = 10 * retryCost
)

// sent notes a command.
func (r *retries) sent() {
	if r.spent.Load() > 0 {
		r.spent.Add(-1)
	}
}

// take reports whether one more may be sent again.
func (r *retries) take() bool {
	if r.spent.Add(retryCost) > mostSaved {
		r.spent.Add(-retryCost)
		return false
	}
	return true
}

// retryPause is about how long to wait before a command is sent again: a slot's move or a new connection takes that long.
const retryPause = 2 * time.Millisecond

// again sends a command, and once more if that is certain not to charge anything twice.
func again[T any](ctx context.Context, s *Store, send func(c Commander) (T, error)) (T, error) {
	link, err := s.connected()
	if err != nil {
		var none T
		return none, err
	}
	s.retries.sent()
	answer, err := send(link.client)
	if err == nil {
		return answer, nil
	}
	v, _ := classify(err)
	if v == wrongServer {
		link.reconnect()
	}
	if v != notRun && v != wrongServer || !s.retries.take() || !pause(ctx, retryPause/2+rand.N(retryPause)) {
		return answer, err
	}
	return send(link.client)
}

// pause waits, and reports whether there is time left after it.
func pause(ctx context.Context, d time.Duration) bool {
	if until, ok := ctx.Deadline(); ok && time.Until(until) <= d {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
