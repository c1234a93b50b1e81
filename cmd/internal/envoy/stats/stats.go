// Package stats keeps statistics under the names of envoyproxy/ratelimit and hands them to statsd, DogStatsD and
// Prometheus, so that existing dashboards stay as they are.
//
// Names are bounded. Those of rules are as many as there are rules. Those that requests make up, by values in them, are
// counted together under <domain>.other once there are too many.
package stats

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Limit are the counts of one limit.
type Limit struct {
	TotalHits, OverLimit, NearLimit, OverLimitWithLocalCache, WithinLimit, ShadowMode, TotalNegativeHits atomic.Uint64

	name string
}

// Stats are all counts of a service. The zero Stats does not work: use [New].
type Stats struct {
	ConfigLoadSuccess, ConfigLoadError, GlobalShadowMode, RedisError, ServiceError atomic.Uint64

	ShouldRateLimit, Check Method

	maxLimits int // names that requests make up
	gauges    func(yield func(name string, value uint64))

	mu       sync.RWMutex // guards the fields below
	limits   map[string]*Limit
	made     map[string]*Limit // that requests made up, by their raw names
	notFound map[string]*atomic.Uint64
}

// Method are the counts of a gRPC method.
type Method struct {
	Requests  atomic.Uint64
	Responses Timer
}

// methods are the methods by their names.
func (s *Stats) methods() map[string]*Method {
	return map[string]*Method{"ShouldRateLimit": &s.ShouldRateLimit, "Check": &s.Check}
}

// New returns statistics that keep at most so many names that requests make up.
func New(most int) *Stats {
	return &Stats{
		maxLimits: most, limits: make(map[string]*Limit), made: make(map[string]*Limit), notFound: make(map[string]*atomic.Uint64),
	}
}

// Gauges has f asked for gauges, by their names below ratelimit, whenever statistics are read. Call it before they are.
func (s *Stats) Gauges(f func(yield func(name string, value uint64))) { s.gauges = f }

// Replace gives the limits of a new set of rules their counts, by their names. Counts of names that stay go on, and
// those of rules that are gone are forgotten.
func (s *Stats) Replace(keys []string) []*Limit {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.limits
	s.limits = make(map[string]*Limit, len(keys))
	out := make([]*Limit, len(keys))
	for i, key := range keys {
		name := Sanitize(key)
		l := s.limits[name]
		if l == nil {
			if l = before[name]; l == nil {
				l = &Limit{name: name}
			}
			s.limits[name] = l
		}
		out[i] = l
	}
	for _, l := range s.made { // a rule may have the name that a request made up before
		if s.limits[l.name] == nil {
			s.limits[l.name] = l
		}
	}
	return out
}

// maxName is the longest name that a request may make up, in bytes.
const maxName = 1024

// Made returns the counts of a name that a request made up. The domain is one that has rules.
func (s *Stats) Made(key []byte, domain string) *Limit {
	s.mu.RLock()
	l := s.made[string(key)]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.made[string(key)]; l != nil {
		return l
	}
	if len(s.made) >= s.maxLimits || len(key) > maxName {
		return s.named(Sanitize(domain) + ".other")
	}
	l = s.named(Sanitize(string(key)))
	s.made[string(key)] = l
	return l
}

// named is the limit of a name. The lock is held.
func (s *Stats) named(name string) *Limit {
	l := s.limits[name]
	if l == nil {
		l = &Limit{name: name}
		s.limits[name] = l
	}
	return l
}

// maxDomains bounds how many unknown domains are told apart.
const maxDomains = 1000

// NotFound counts a descriptor of a domain that has no rules.
func (s *Stats) NotFound(domain string) {
	s.mu.RLock()
	n := s.notFound[domain]
	s.mu.RUnlock()
	if n == nil {
		s.mu.Lock()
		if len(s.notFound) >= maxDomains || len(domain) > maxName {
			domain = "other"
		}
		if n = s.notFound[domain]; n == nil {
			n = new(atomic.Uint64)
			s.notFound[strings.Clone(domain)] = n
		}
		s.mu.Unlock()
	}
	n.Add(1)
}

// scope is what all names of the service begin with.
const scope = "ratelimit.service."

// Each calls f with all counters that are not 0, by their full names, in no order.
func (s *Stats) Each(f func(name string, value uint64)) {
	counter := func(name string, n *atomic.Uint64) {
		if v := n.Load(); v > 0 {
			f(name, v)
		}
	}
	counter(scope+"config_load_success", &s.ConfigLoadSuccess)
	counter(scope+"config_load_error", &s.ConfigLoadError)
	counter(scope+"global_shadow_mode", &s.GlobalShadowMode)
	counter(scope+"call.should_rate_limit.redis_error", &s.RedisError)
	counter(scope+"call.should_rate_limit.service_error", &s.ServiceError)
	for name, m := range s.methods() {
		counter("ratelimit_server."+name+".total_requests", &m.Requests)
	}
	s.mu.RLock()
	limits := slices.Collect(maps.Values(s.limits))
	notFound := maps.Clone(s.notFound)
	s.mu.RUnlock()
	for domain, n := range notFound {
		counter(scope+"rate_limit."+Sanitize(domain)+".domain_not_found", n)
	}
	for _, l := range limits {
		l.each(counter)
	}
}

func (l *Limit) each(counter func(name string, n *atomic.Uint64)) {
	prefix := scope + "rate_limit." + l.name
	counter(prefix+".total_hits", &l.TotalHits)
	counter(prefix+".over_limit", &l.OverLimit)
	counter(prefix+".near_limit", &l.NearLimit)
	counter(prefix+".over_limit_with_local_cache", &l.OverLimitWithLocalCache)
	counter(prefix+".within_limit", &l.WithinLimit)
	counter(prefix+".shadow_mode", &l.ShadowMode)
	counter(prefix+".total_negative_hits", &l.TotalNegativeHits)
}

// EachGauge calls f with all gauges.
func (s *Stats) EachGauge(f func(name string, value uint64)) {
	if s.gauges != nil {
		s.gauges(func(name string, value uint64) { f("ratelimit."+name, value) })
	}
}

var ipv4 = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// meant reports whether a character has a meaning in statsd, or cannot be part of a name: a control character, or
// utf8.RuneError, which also stands for a byte that is not UTF-8.
func meant(r rune) bool {
	return r == ':' || r == '|' || r < ' ' || r == 0x7f || r == utf8.RuneError
}

// Sanitize is the name with an underscore in place of characters that have a meaning, of each byte that is not UTF-8, and of
// the dots of addresses.
func Sanitize(name string) string {
	if strings.IndexFunc(name, meant) >= 0 {
		name = strings.Map(func(r rune) rune {
			if meant(r) {
				return '_'
			}
			return r
		}, name)
	}
	return ipv4.ReplaceAllStringFunc(name, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
}

// Bounds of a histogram of response times, in seconds; those that Prometheus' libraries have unless told otherwise.
var bounds = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// maxMillis is the longest time that statsd is told exactly; longer ones are told as this.
const maxMillis = 10_000

// Timer keeps times for statsd, which is told each, and for Prometheus. The zero Timer works.
type Timer struct {
	buckets [len(bounds) + 1]atomic.Uint64 // by seconds
	millis  [len(bounds) + 1]atomic.Uint64 // by the same bounds, of milliseconds
	micros  atomic.Uint64                  // the sum
	each    [maxMillis + 1]atomic.Uint32   // by whole milliseconds, since they were last told
}

// Observe notes a time.
func (t *Timer) Observe(d time.Duration) {
	d = max(0, d)
	t.buckets[bucket(d.Seconds())].Add(1)
	ms := d.Milliseconds()
	t.millis[bucket(float64(ms))].Add(1)
	t.micros.Add(uint64(d.Microseconds()))
	t.each[min(ms, maxMillis)].Add(1)
}

func bucket(v float64) int {
	for i, b := range bounds {
		if v <= b {
			return i
		}
	}
	return len(bounds)
}

// drain tells how often each time was seen since the last call.
func (t *Timer) drain(f func(millis int, times uint32)) {
	for ms := range t.each {
		if n := t.each[ms].Load(); n > 0 {
			f(ms, t.each[ms].Swap(0))
		}
	}
}
