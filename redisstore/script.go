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

// The script consists of parts, numbered in their order. It never changes while the process runs; values reach it only
// as KEYS and ARGV.
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
		panic(err) // the files are compiled in
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

// maxLoads is the maximum number of times that a call loads the script. Once is enough unless scripts are flushed
// continually.
const maxLoads = 3

// run runs the script. A server without the script has not run it, so it is then loaded and run again. Any other call
// that certainly did not run is resent once; a call that may have been charged never is.
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
		if s.names.tagged { // every node has its own scripts; the keys select the node
			return eval(ctx, c, true, keys, packed)
		}
		if err := s.loadScript(ctx, c, loaded); err != nil {
			return answer, err
		}
	}
}

// loadScript loads the script, once for all callers that found it missing concurrently.
func (s *Store) loadScript(ctx context.Context, c Commander, before int64) error {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.loads.Load() != before {
		return nil // another caller has loaded it since
	}
	if _, err := c.Do(ctx, "SCRIPT", "LOAD", script); err != nil {
		return err
	}
	s.loads.Add(1)
	return nil
}

// evaluator is a Commander with a faster way to run the script.
type evaluator interface {
	eval(ctx context.Context, whole bool, keys []string, packed string) (value, error)
}

// eval runs the script, by its text if whole is set, else by its digest.
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

// unavailable wraps an error so that a limiter's fail modes apply, and adds advice for the operator.
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

// retries is a retry budget: 1 retry per 10 commands, and up to 10 in a burst. More retries would add load to a server
// in trouble.
type retries struct {
	spent atomic.Int64 // used budget in tenths of a retry; may be negative
}

const (
	retryCost     = 10
	maxRetryBurst = 10 * retryCost
)

// sent counts a command.
func (r *retries) sent() {
	if r.spent.Load() > 0 {
		r.spent.Add(-1)
	}
}

// take reports whether a retry is within the budget, and uses it.
func (r *retries) take() bool {
	if r.spent.Add(retryCost) > maxRetryBurst {
		r.spent.Add(-retryCost)
		return false
	}
	return true
}

// retryPause is the average pause before a retry: about the time that a slot migration or a new connection takes.
const retryPause = 2 * time.Millisecond

// again sends a command, and resends it once if it certainly did not run.
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

// pause waits for d and reports whether there is time left afterwards.
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
