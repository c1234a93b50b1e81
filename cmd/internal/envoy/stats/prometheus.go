package stats

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Page serves the statistics to Prometheus.
type Page struct {
	Stats  *Stats
	Mapper *Mapper
	Tags   map[string]string // labels of all metrics

	mu    sync.Mutex // guards known
	known map[string]knownMetric
}

// knownMetric is a cached result of the mapper, because mapping is slow.
type knownMetric struct {
	Metric
	ok bool
}

// maxKnown is the maximum number of cached names. When it is reached, the cache is cleared.
const maxKnown = 200_000

func (p *Page) metric(name, kind string) (Metric, bool) {
	k, ok := p.known[kind+name]
	if !ok {
		if p.known == nil || len(p.known) >= maxKnown {
			p.known = make(map[string]knownMetric)
		}
		k.Metric, k.ok = p.Mapper.Map(name, kind, p.Tags)
		p.known[kind+name] = k
	}
	return k.Metric, k.ok
}

// ServeHTTP writes the metrics in the text format of Prometheus.
func (p *Page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	var b bytes.Buffer
	p.values(&b, "counter", p.Stats.Each)
	p.values(&b, "gauge", p.Stats.EachGauge)
	seen := make(map[string]bool)
	for _, name := range sortedKeys(p.Stats.methods()) {
		p.responses(&b, name, p.Stats.methods()[name], seen)
	}
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // a failed write means that the client is gone
}

// values writes counters or gauges. Statistics with the same name and labels are added up.
func (p *Page) values(b *bytes.Buffer, kind string, each func(func(string, uint64))) {
	families := make(map[string]map[string]float64)
	each(func(name string, value uint64) {
		m, ok := p.metric(name, kind)
		if !ok {
			return
		}
		if families[m.Name] == nil {
			families[m.Name] = make(map[string]float64)
		}
		families[m.Name][m.Labels] += float64(value) * m.Scale
	})
	for _, name := range sortedKeys(families) {
		b.WriteString("# TYPE " + name + " " + kind + "\n")
		for _, labels := range sortedKeys(families[name]) {
			b.WriteString(name + labels + " " + number(families[name][labels]) + "\n")
		}
	}
}

// responses writes the histogram of a method's response times.
func (p *Page) responses(b *bytes.Buffer, name string, method *Method, seen map[string]bool) {
	m, ok := p.metric("ratelimit_server."+name+".response_time", "observer")
	t := &method.Responses
	buckets, sum := &t.buckets, float64(t.micros.Load())/1e6
	if m.Scale == 1 {
		buckets, sum = &t.millis, float64(t.micros.Load())/1e3
	}
	if !ok || method.Requests.Load() == 0 {
		return
	}
	with := func(le string) string {
		return "{" + strings.TrimPrefix(strings.TrimSuffix(m.Labels, "}")+`,le="`+le+`"}`, "{")
	}
	if !seen[m.Name] {
		b.WriteString("# TYPE " + m.Name + " histogram\n")
	}
	seen[m.Name] = true
	total := uint64(0)
	for i := range buckets {
		le := "+Inf"
		if i < len(bounds) {
			le = number(bounds[i])
		}
		total += buckets[i].Load()
		b.WriteString(m.Name + "_bucket" + strings.Replace(with(le), "{,", "{", 1) + " " + strconv.FormatUint(total, 10) + "\n")
	}
	b.WriteString(m.Name + "_sum" + m.Labels + " " + number(sum) + "\n")
	b.WriteString(m.Name + "_count" + m.Labels + " " + strconv.FormatUint(total, 10) + "\n")
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
