package quota

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Merge adds the headers of an upstream's response to ours, which already contain our quota. It is for proxies, which must
// neither hide the upstream's limits nor make them look higher than they are:
//
//   - X-Ratelimit-Limit, -Remaining and -Reset are those with fewer requests remaining, so that a client that follows them
//     exceeds neither limit; if the numbers are equal, those with the later reset. If they cannot be compared, they are the
//     upstream's.
//   - Retry-After and X-Ratelimit-Retry-After are the later of both.
//   - Ratelimit and Ratelimit-Policy list the upstream's policies and ours. A policy of ours whose name the upstream also
//     uses is renamed to "outer/name".
//   - All other headers of the upstream are appended, including other spellings of quota headers, such as
//     X-Rate-Limit-Limit and Ratelimit-Limit.
//
// The upstream's header is not changed.
func Merge(ours, upstream http.Header) {
	quota := false
	for name, values := range upstream {
		switch name {
		case headerLimit, headerRemaining, headerReset, headerRetryAfter, headerXRetry, headerPolicy, headerRateLimit:
			quota = true
		default:
			addAll(ours, name, values)
		}
	}
	if quota { // most upstreams send no quota
		mergeLimits(ours, upstream)
	}
}

// mergeLimits merges the quota headers.
func mergeLimits(ours, upstream http.Header) {
	now := time.Now()
	mergeQuota(ours, upstream, now)
	for _, name := range [...]string{headerRetryAfter, headerXRetry} {
		if later(first(upstream, name), first(ours, name), now) {
			ours[name] = upstream[name]
		}
	}
	renameOurs(ours, upstream)
	for _, name := range [...]string{headerPolicy, headerRateLimit} {
		if values, ok := upstream[name]; ok {
			addAll(ours, name, values)
		}
	}
}

// addAll appends values to a header, without writing to the existing slices.
func addAll(h http.Header, name string, values []string) {
	if old := h[name]; len(old) > 0 {
		values = append(old[:len(old):len(old)], values...)
	}
	h[name] = values[:len(values):len(values)]
}

func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// mergeQuota keeps the stricter quota with all of its headers, because the limit of one quota must not be combined with the
// remaining number of another.
func mergeQuota(ours, upstream http.Header, now time.Time) {
	names := [...]string{headerLimit, headerRemaining, headerReset}
	given := false
	for _, name := range names {
		given = given || len(upstream[name]) > 0
	}
	if !given || !stricterQuota(upstream, ours, now) {
		return
	}
	for _, name := range names {
		if values, ok := upstream[name]; ok {
			ours[name] = values
		} else {
			delete(ours, name)
		}
	}
}

// stricterQuota reports whether the upstream's quota allows no more than ours.
func stricterQuota(upstream, ours http.Header, now time.Time) bool {
	theirs, known := leadingInt(first(upstream, headerRemaining))
	remaining, own := leadingInt(first(ours, headerRemaining))
	switch {
	case own && len(upstream[headerRemaining]) == 0: // at most the limit is known
		most, ok := leadingInt(first(upstream, headerLimit))
		limit, _ := leadingInt(first(ours, headerLimit))
		return ok && most < limit
	case !own || !known:
		return true
	case theirs != remaining:
		return theirs < remaining
	}
	return !later(first(ours, headerReset), first(upstream, headerReset), now)
}

// leadingInt parses an integer, or the first item of a list as in early drafts: "10, 10;w=60".
func leadingInt(s string) (int64, bool) {
	s, _, _ = strings.Cut(s, ",")
	s, _, _ = strings.Cut(s, ";")
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n, err == nil
}

// later reports whether a is a later time than b. A valid time is later than an invalid one.
func later(a, b string, now time.Time) bool {
	from, ok := seconds(a, now)
	if !ok {
		return false
	}
	to, ok := seconds(b, now)
	return !ok || from > to
}

// epoch is the number from which seconds are a Unix timestamp instead of a duration.
const epoch = 1e9

// seconds parses a time and returns the seconds from now. The forms are seconds with or without a fraction, a Unix timestamp,
// an HTTP date, and a Go duration.
func seconds(s string, now time.Time) (float64, bool) {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(n) {
		if n >= epoch {
			n -= float64(now.Unix())
		}
		return n, true
	}
	if at, err := http.ParseTime(s); err == nil {
		return at.Sub(now).Seconds(), true
	}
	if d, err := time.ParseDuration(s); err == nil {
		return d.Seconds(), true
	}
	return 0, false
}

// renameOurs renames our policies whose names the upstream also uses.
func renameOurs(ours, upstream http.Header) {
	theirs := make(map[string]bool)
	for _, name := range [...]string{headerPolicy, headerRateLimit} {
		for _, line := range upstream[name] {
			eachItem(line, func(item string) { theirs[itemName(item)] = true })
		}
	}
	if len(theirs) == 0 {
		return
	}
	for _, name := range [...]string{headerPolicy, headerRateLimit} {
		for i, line := range ours[name] {
			if renamed := renameItems(line, theirs); renamed != line {
				lines := append([]string(nil), ours[name]...)
				lines[i], ours[name] = renamed, lines
			}
		}
	}
}

func renameItems(line string, taken map[string]bool) string {
	var items []string
	eachItem(line, func(item string) {
		if name := itemName(item); taken[name] {
			item = quote("outer/"+name) + strings.TrimPrefix(item, quote(name))
		}
		items = append(items, item)
	})
	return strings.Join(items, ", ")
}

// KeepItems removes the items of Ratelimit whose names are not listed, and the header if no item is left.
func KeepItems(h http.Header, names []string) {
	var kept []string
	for _, line := range h[headerRateLimit] {
		eachItem(line, func(item string) {
			if slices.Contains(names, itemName(item)) {
				kept = append(kept, item)
			}
		})
	}
	if len(kept) == 0 {
		delete(h, headerRateLimit)
		return
	}
	h[headerRateLimit] = []string{strings.Join(kept, ", ")}
}

// eachItem calls visit for each item of a list. A comma inside a quoted string does not end an item.
func eachItem(line string, visit func(item string)) {
	quoted, from := false, 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			visit(strings.TrimSpace(line[from:i]))
			from = i + 1
		}
	}
	visit(strings.TrimSpace(line[from:]))
}

// itemName returns the name of a policy: a String, or a Token, which some servers send instead.
func itemName(item string) string {
	if !strings.HasPrefix(item, `"`) {
		name, _, _ := strings.Cut(item, ";")
		return strings.TrimSpace(name)
	}
	var b strings.Builder
	for i := 1; i < len(item) && item[i] != '"'; i++ {
		if item[i] == '\\' && i+1 < len(item) {
			i++
		}
		b.WriteByte(item[i])
	}
	return b.String()
}
