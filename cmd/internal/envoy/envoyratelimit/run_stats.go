package envoyratelimit

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// beginStats starts sending statistics, or serving them to Prometheus.
func (p *program) beginStats() error {
	s := &p.settings.Stats
	switch {
	case s.Disabled:
	case s.Prometheus:
		return p.beginPrometheus()
	case s.Statsd || s.DogStatsd:
		sink := &stats.Sink{
			Addr: net.JoinHostPort(s.Host, strconv.Itoa(s.Port)), Dog: s.DogStatsd, Tags: s.Tags, Every: s.Flush,
			Failed: func(err error) {
				if err != nil {
					p.log.Warn("sending statistics failed", "error", err)
				} else {
					p.log.Warn("sending statistics resumed")
				}
			},
		}
		for _, m := range s.Mogrifiers {
			pattern, err := regexp.Compile(m.Pattern)
			if err != nil {
				return fmt.Errorf("USE_DOG_STATSD_MOGRIFIERS: invalid pattern: %w", err)
			}
			sink.Rewrite = append(sink.Rewrite, stats.Rewrite{Pattern: pattern, Name: m.Name, Tags: m.Tags})
		}
		p.in(func() { sink.Run(p.work, p.stats) })
	}
	return nil
}

// maxMapping is the maximum size of PROMETHEUS_MAPPER_YAML in bytes.
const maxMapping = 4 << 20

func (p *program) beginPrometheus() error {
	s := &p.settings.Stats
	mapper := stats.DefaultMapper(s.Milliseconds)
	if s.PrometheusMap != "" {
		data, err := plainfile.Read(s.PrometheusMap, maxMapping)
		if err != nil {
			return fmt.Errorf("PROMETHEUS_MAPPER_YAML: %w", err)
		}
		var warnings []string
		if mapper, warnings, err = stats.ParseMapper(data); err != nil {
			return fmt.Errorf("PROMETHEUS_MAPPER_YAML: %s: %w", s.PrometheusMap, err)
		}
		for _, w := range warnings {
			p.log.Warn("PROMETHEUS_MAPPER_YAML: " + w)
		}
	}
	mux := http.NewServeMux()
	mux.Handle(s.PrometheusPath, &stats.Page{Stats: p.stats, Mapper: mapper, Tags: s.Tags})
	return p.serveHTTP("Prometheus", s.PrometheusAddr, newHTTP(mux, time.Minute))
}

// timed counts requests and measures their duration. Those to /json are not counted, as in the reference.
type timed struct{ *Service }

func (t *timed) ShouldRateLimit(ctx context.Context, req *rls.Request, resp *rls.Response) error {
	began := time.Now()
	t.stats.ShouldRateLimit.Requests.Add(1)
	err := t.Service.ShouldRateLimit(ctx, req, resp)
	t.stats.ShouldRateLimit.Responses.Observe(time.Since(began))
	return err
}
