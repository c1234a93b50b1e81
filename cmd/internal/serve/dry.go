package serve

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Check returns the errors that sluice serve would return at the start about files, directories and sockets, from the
// same code, and what it would warn of. It listens on nothing, connects to nothing and writes nothing.
func Check(cfg *config.Config, version string) (warnings []error, err error) {
	s := &Service{
		cfg: *cfg, options: Options{Version: version}, dry: true, started: time.Now(), log: slog.New(slog.DiscardHandler), level: new(slog.LevelVar),
		logLines: logwriter.New(logwriter.Config{Output: io.Discard}),
	}
	set, err := rules.New(rules.Config{})
	if err != nil {
		return nil, err
	}
	s.rules = func() *rules.Set { return set }
	faults := []error{s.openCheck()}
	s.store, err = s.openStore()
	defer s.store.close()
	faults = append(faults, err, s.openQueue())
	if s.store.Store == nil { // one of servers
		s.store.Store = memstore.New()
	}
	s.openShed()
	s.metrics = s.newMetrics()
	faults = append(faults, s.openTelemetry())
	events, err := s.events()
	faults = append(faults, err)
	if s.limiter, err = s.newLimiter(events); err != nil {
		return nil, errors.Join(append(faults, err)...)
	}
	listeners := s.listeners()
	faults = append(faults, s.addListeners(&listeners)...)
	warnings, err = listen.Check(listeners)
	return warnings, errors.Join(append(faults, err)...)
}
