package adminapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

func (a *api) top(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	limit := 20
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 1000 {
			return nil, problemf(http.StatusBadRequest, "limit: %.40q: write 1 to 1000 keys", text)
		}
	}
	of := a.Denied
	switch by := query.Get("by"); by {
	case "", "denied":
	case "near_limit":
		of = a.Near
	default:
		return nil, problemf(http.StatusBadRequest, "by: %.40q: write denied for the keys denied most often, or near_limit for those closest to their limit", by)
	}
	return adminmsg.Top{Since: a.started.UTC(), Entries: topOf(a.Rules(), of, limit)}, nil
}

// topOf returns up to limit top keys with decoded keys.
func topOf(set *rules.Set, of func(int) []Top, limit int) []adminmsg.TopEntry {
	all := []adminmsg.TopEntry{}
	if of == nil {
		return all
	}
	for _, t := range of(limit) {
		all = append(all, adminmsg.TopEntry{BucketName: nameOf(set, &sluice.Rule{Name: t.Rule}, t.Key), Count: t.Count, MaxError: t.Error})
	}
	return all
}

const (
	minWatchInterval, maxWatchInterval = 100 * time.Millisecond, time.Minute
	watchTop                           = 10               // top keys per event
	watchWrite                         = 10 * time.Second // timeout for writing an event
)

// watch sends an event with the decisions of each interval until the client disconnects or the service shuts down.
func (a *api) watch(w http.ResponseWriter, r *http.Request) (any, error) {
	every := time.Second
	if text := r.URL.Query().Get("interval"); text != "" {
		var err error
		if every, err = time.ParseDuration(text); err != nil || every < minWatchInterval || every > maxWatchInterval {
			return nil, problemf(http.StatusBadRequest, "interval: %.40q: write a duration between %v and %v, such as 1s", text, minWatchInterval, maxWatchInterval)
		}
	}
	select {
	case a.watched <- struct{}{}:
		defer func() { <-a.watched }()
	default:
		bounds.AdminWatchers.Reached()
		return nil, problemf(http.StatusServiceUnavailable, "too many watches: %d are active: end one of them", maxWatchers)
	}
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the server's read timeout would end the request
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	before := a.counts()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		now := a.counts()
		b, err := json.Marshal(adminmsg.Event{Time: time.Now().UTC(), Rules: deltas(a.Rules(), before, now), Top: topOf(a.Rules(), a.Denied, watchTop)})
		if err != nil {
			return nil, nil
		}
		before = now
		_ = out.SetWriteDeadline(time.Now().Add(watchWrite + every))
		if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil || out.Flush() != nil {
			return nil, nil
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil, nil
		case <-a.Ending:
			return nil, nil
		}
	}
}

// deltas returns the rules with decisions between before and now. A count that
// decreased belongs to a rule that was removed and added again.
func deltas(set *rules.Set, before, now map[string]adminmsg.Counts) []adminmsg.RuleCounts {
	all := []adminmsg.RuleCounts{}
	for _, c := range set.ActiveRules() {
		d := adminmsg.RuleCounts{Name: c.Name}
		for _, r := range c.Rules {
			was, is := before[r.Name], now[r.Name]
			if is.Allowed < was.Allowed || is.Denied < was.Denied {
				was = adminmsg.Counts{}
			}
			addCounts(&d.Counts, adminmsg.Counts{
				Allowed: is.Allowed - was.Allowed, Denied: is.Denied - was.Denied, ShadowDenied: is.ShadowDenied - was.ShadowDenied,
				NearLimit: is.NearLimit - was.NearLimit,
			})
		}
		if d.Counts != (adminmsg.Counts{}) {
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(x, y adminmsg.RuleCounts) int {
		return int(min(max(y.Denied+y.Allowed-x.Denied-x.Allowed, -1), 1))
	})
	return all
}
