// Package stats counts statistics under the names of envoyproxy/ratelimit and exports them to statsd, DogStatsD and
// Prometheus, so that existing dashboards keep working.
//
// The number of names is bounded: one per rule, and a maximum number of names that contain values of requests. Beyond the
// maximum, statistics are counted under <domain>.other.
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

// Limit contains the statistics of one limit.
type Limit struct {
	TotalHits, OverLimit, NearLimit, OverLimitWithLocalCache, WithinLimit, ShadowMode, TotalNegativeHits atomic.Uint64

	name string
}

// Stats contains all statistics of a service. The zero value is invalid: use [New].
type Stats struct {
	ConfigLoadSuccess, ConfigLoadError, GlobalShadowMode, RedisError, ServiceError atomic.Uint64

	ShouldRateLimit, Check Method

	maxLimits int // maximum number of names with values of requests
	gauges    func(yield func(name string, value uint64))

	mu       sync.RWMutex // guards the fields below
	limits   map[string]*Limit
	made     map[string]*Limit // limits with values of requests, by unsanitized name
	notFound map[string]*atomic.Uint64
}

// Method contains the statistics of a gRPC method.
type Method struct {
	Requests  atomic.Uint64
	Responses Timer
}

// methods returns the methods by name.
func (s *Stats) methods() map[string]*Method {
	return map[string]*Method{"ShouldRateLimit": &s.ShouldRateLimit, "Check": &s.Check}
}

// New returns statistics with at most most names that contain values of requests.
func New(most int) *Stats {
	return &Stats{
		maxLimits: most, limits: make(map[string]*Limit), made: make(map[string]*Limit), notFound: make(map[string]*atomic.Uint64),
	}
}

// Gauges sets the function that yields gauges by their names below ratelimit, whenever statistics are read. It must be called
// before the first read.
func (s *Stats) Gauges(f func(yield func(name string, value uint64))) { s.gauges = f }

// Replace returns the statistics of the limits of a new rule set, by name. Names that remain keep their counts; those of
// removed rules are dropped.
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
	for _, l := range s.made { // a rule may have the name of such a limit
		if s.limits[l.name] == nil {
			s.limits[l.name] = l
		}
	}
	return out
}

// maxName is the maximum length of a name with values of requests, in bytes.
const maxName = 1024

// Made returns the statistics of a name that contains values of a request. The domain must have rules.
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

// named returns the limit of a name. s.mu must be held.
func (s *Stats) named(name string) *Limit {
	l := s.limits[name]
	if l == nil {
		l = &Limit{name: name}
		s.limits[name] = l
	}
	return l
}

// maxDomains is the maximum number of unknown domains that are counted separately.
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

// scope is the prefix of all names.
const scope = "ratelimit.service."

// Each calls f with the full names and values of all counters that are not 0, in no particular order.
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

// meant reports whether a character has a meaning in statsd or is invalid in a name: a control character, or utf8.RuneError,
// which also represents an invalid byte.
func meant(r rune) bool {
	return r == ':' || r == '|' || r < ' ' || r == 0x7f || r == utf8.RuneError
}

// Sanitize replaces characters with a meaning, invalid bytes and the dots of IP addresses by underscores.
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

// Bounds of the histogram of response times, in seconds: the defaults of the Prometheus libraries.
var bounds = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// maxMillis is the maximum time sent to statsd, in milliseconds; longer ones are sent as this.
const maxMillis = 10_000

// Timer records times for statsd, which receives each of them, and for Prometheus. The zero value is ready for use.
type Timer struct {
	buckets [len(bounds) + 1]atomic.Uint64 // by seconds
	millis  [len(bounds) + 1]atomic.Uint64 // with the same bounds, in milliseconds
	micros  atomic.Uint64                  // sum
	each    [maxMillis + 1]atomic.Uint32   // by milliseconds, since the last drain
}

// Observe records a time.
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

// drain calls f with the number of occurrences of each time since the last call.
func (t *Timer) drain(f func(millis int, times uint32)) {
	for ms := range t.each {
		if n := t.each[ms].Load(); n > 0 {
			f(ms, t.each[ms].Swap(0))
		}
	}
}
