package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluiceproject/sluice/internal/bounds"
)

func collectBounds(out chan<- prometheus.Metric) {
	for _, b := range bounds.All() {
		if b.Elsewhere != "" {
			continue
		}
		counter(out, boundDesc, b.Count(), b.Name)
	}
}
