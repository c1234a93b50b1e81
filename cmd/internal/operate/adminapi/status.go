package adminapi

import (
	"net/http"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

func (a *api) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	s := adminmsg.Status{Listeners: map[string]string{}}
	if a.Status != nil {
		s = a.Status(r.Context())
	}
	s.StartedAt, s.UptimeSeconds = a.started.UTC(), time.Since(a.started).Round(time.Millisecond).Seconds()
	s.Suspended, s.LogLevel = append([]string{}, a.Limiter.SuspendedRules()...), levelName(a.Level.Level())
	for _, rule := range a.Rules().Config().Rules {
		if !rule.Disabled {
			s.Rules.SluiceRules++
		}
	}
	s.Rules.EnvoyDomains = len(a.Rules().Config().Domains)
	s.Store.History = append([]adminmsg.BreakerEvent{}, s.Store.History...)
	s.Store.Servers, s.Rules.Files = append([]adminmsg.ServerStatus{}, s.Store.Servers...), append([]string{}, s.Rules.Files...)
	return s, nil
}
