package serve

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logging"
)

// An outage is logged at once and then every 5 s, regardless of the number of requests. The message is the same whether the store
// was too late, not reachable or not called; the error differs.
func TestStoreErrorsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, _ := logging.New(&out, logging.Options{})
		e, err := logEvents(&config.Logging{Denials: config.Off}, log, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		refused := errors.Join(errors.New("connection refused"), sluice.ErrUnavailable)
		open := fmt.Errorf("%w: circuit breaker open", sluice.ErrUnavailable)
		want := []string{"connection refused", "circuit breaker open", "circuit breaker open"}
		for range want {
			e.OnStoreError(t.Context(), refused)
			for range 99 {
				e.OnStoreError(t.Context(), open)
			}
			refused = open
			<-time.After(5 * time.Second)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), &out)
		}
		for i, line := range lines {
			if !strings.Contains(line, `level=WARN msg="store unavailable: fail modes decide" error=`) || !strings.Contains(line, want[i]) ||
				strings.Contains(line, "in time") || strings.Contains(line, "suppressed=99") != (i > 0) {
				t.Errorf("line %d: %s", i, line)
			}
		}
	})
}
