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

// audit writes down a change that somebody made or failed to make. The text of an error that the caller caused is not
// written: it may repeat what was sent, and that may be a secret.
func (a *api) audit(r *http.Request, what, selector string, err error, more ...any) {
	outcome := "done"
	if err != nil {
		p := problemOf(err)
		outcome = "failed: " + http.StatusText(p.Status)
		if p.Status >= http.StatusInternalServerError {
			outcome = "failed: " + p.Detail
		}
	}
	args := []any{"who", a.principal(r), "from", from(r), "what", what}
	if selector != "" {
		args = append(args, "selector", selector)
	}
	a.write(r.Context(), append(append(args, more...), "outcome", outcome)...)
}

// unknownRules returns the names of rules that an operator wrote and that do not exist, for the audit log. Names of rules are no
// secrets, and without them nothing says what was meant.
func unknownRules(err error, names ...string) []any {
	if !errors.Is(err, rules.ErrUnknownRule) || len(names) == 0 {
		return nil
	}
	return []any{"unknown", fmt.Sprintf("%.200s", strings.Join(names, "; "))}
}

// write writes a line whatever the log's level is, so that nobody who may change that can hide what else they change.
func (a *api) write(ctx context.Context, args ...any) {
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "admin", 0)
	line.Add(args...)
	_ = a.Log.Handler().Handle(ctx, line)
}

// selectorOf names buckets in the log, with secrets masked.
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

// reject answers a request that may not be made, and writes down that there was one.
func (a *api) reject(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	w.Header().Set("Connection", "close") // a stranger takes up no room
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice admin"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "60")
	}
	if more, ok := a.rejections.pass(time.Now()); ok {
		a.write(r.Context(), "who", "unknown", "from", from(r), "what", fmt.Sprintf("%.10s %.100s", r.Method, r.URL.Path), "outcome", "refused: "+http.StatusText(p.Status), "unreported", more)
	}
	writeProblem(w, p)
}

// sampler lets a few lines a second through, so that nobody can fill the log, and counts the others.
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
