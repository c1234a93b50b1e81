package adminapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// audit logs a change that was made or that failed. The text of a 4xx error is not logged, because it may repeat parts of
// the request, which may be secret.
func (a *api) audit(r *http.Request, action, selector string, err error, more ...any) {
	outcome := "done"
	if err != nil {
		p := problemOf(err)
		outcome = "failed: " + http.StatusText(p.Status)
		if p.Status >= http.StatusInternalServerError {
			outcome = "failed: " + p.Detail
		}
	}
	args := []any{"principal", a.principal(r), "client", from(r), "action", action}
	if selector != "" {
		args = append(args, "selector", selector)
	}
	a.write(r.Context(), append(append(args, more...), "outcome", outcome)...)
}

// unknownRules returns the names of rules in the request that do not exist, for the audit log, which would otherwise not
// identify the target. Names of rules are not secret.
func unknownRules(err error, names ...string) []any {
	if !errors.Is(err, rules.ErrUnknownRule) || len(names) == 0 {
		return nil
	}
	return []any{"unknown_rules", fmt.Sprintf("%.200s", strings.Join(names, "; "))}
}

// write logs a line regardless of the log level, so that lowering the level cannot hide other changes.
func (a *api) write(ctx context.Context, args ...any) {
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "audit", 0)
	line.Add(args...)
	_ = a.Log.Handler().Handle(ctx, line)
}

// selectorOf formats buckets for the log, with secrets masked.
func selectorOf(set *rules.Set, buckets []sluice.Bucket) string {
	var all []string
	for i := range buckets {
		text := buckets[i].Rule.Name
		for _, p := range set.KeyParts(buckets[i].Rule, buckets[i].Key) {
			text += " " + p.Name + "=" + p.Value
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// reject responds to an unauthorized request and logs it.
func (a *api) reject(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	w.Header().Set("Connection", "close") // unauthorized clients must not occupy connections
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice admin"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "60")
	}
	if more, ok := a.rejections.pass(time.Now()); ok {
		a.write(r.Context(), "principal", "unknown", "client", from(r), "action", fmt.Sprintf("%.10s %.100s", r.Method, r.URL.Path), "outcome", "rejected: "+http.StatusText(p.Status), "suppressed", more)
	}
	writeProblem(w, p)
}

// sampler passes up to rejectionsPerSecond lines per second and counts the dropped ones, so that clients cannot flood the log.
type sampler struct {
	mu      sync.Mutex // guards the fields below
	second  int64
	n       int
	dropped int
}

const rejectionsPerSecond = 5

func (s *sampler) pass(now time.Time) (dropped int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := now.Unix(); t != s.second {
		s.second, s.n = t, 0
	}
	if s.n++; s.n > rejectionsPerSecond {
		s.dropped++
		return 0, false
	}
	dropped, s.dropped = s.dropped, 0
	return dropped, true
}
