package serve

import (
	"errors"
	"log/slog"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/rules"
)

// Check returns the errors and warnings of [New] about files, directories and sockets. It uses the same code, but does not
// listen, connect or write.
func Check(cfg *config.Config, version string) (warnings []error, err error) {
	log := slog.New(slog.DiscardHandler)
	set, err := rules.New(rules.Config{})
	if err != nil {
		return nil, err
	}
	loaded := &ruleSource{set: func() *rules.Set { return set }}
	var faults []error
	note := func(err error) { faults = append(faults, err) }

	secret, err := readReservationSecret(cfg.CheckAPI.ReservationSecretFile)
	note(err)
	refunds, err := refundGuard(cfg.CheckAPI.RefundTokenFile)
	note(err)
	store, err := stores.Open(&cfg.Store, log, true)
	note(err)
	defer store.Close()
	_, err = openQueue(cfg, log, true)
	note(err)
	shed := newShedder(cfg, loaded.set)
	counted := newMetrics(metricsOf{cfg: cfg, version: version, loaded: loaded, store: store, shed: shed, lostLogs: func() int64 { return 0 }})
	_, err = openCollectors(cfg, version, counted, log, true)
	note(err)
	events, err := newEvents(&cfg.Logging, log, loaded.set, counted, nil, nil)
	note(err)
	built := &snapshot{cfg: cfg, log: log, rules: loaded.set, metrics: counted}
	if built.limiter, err = newLimiter(store, nil, cfg.Store.Kind, events); err != nil {
		return nil, errors.Join(append(faults, err)...)
	}
	all, more := edges{snapshot: built, secret: secret, refunds: refunds, shed: shed}.listeners(&operated{
		snapshot: built, version: version, level: new(slog.LevelVar), loaded: loaded, store: store,
	}, true)
	warnings, err = listen.Check(all.Config)
	err = inListeners(err)
	return warnings, errors.Join(append(append(faults, more...), err)...)
}
