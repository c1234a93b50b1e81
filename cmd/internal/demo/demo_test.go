package demo

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// If another program uses a default address, the demo uses a free port and prints that, unless the address was given with --listen.
func TestDemoTaken(t *testing.T) {
	l, err := net.Listen("tcp", freePort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	p, err := (&Options{Listen: taken}).places()
	if err != nil || p.variables["GATEWAY"] != freePort || !slices.Contains(p.taken, taken) {
		t.Errorf("places %v, %v", p, err)
	}
	if _, err := (&Options{Listen: taken, Chosen: true}).places(); err == nil || !strings.Contains(err.Error(), "--listen 127.0.0.1:PORT") {
		t.Errorf("chosen: %v", err)
	}
	var out strings.Builder
	g := guide{
		gateway: "127.0.0.1:1", http: "127.0.0.1:2", grpc: "127.0.0.1:3", admin: "127.0.0.1:4",
		taken: []string{"127.0.0.1:6070", "127.0.0.1:8000"},
	}
	g.write(&out)
	for _, want := range []string{
		"because other programs use 127.0.0.1:6070, 127.0.0.1:8000.", "(gRPC) on 127.0.0.1:3, admin API on 127.0.0.1:4.",
		"SLUICE_ADMIN_URL=http://127.0.0.1:4 SLUICE_SERVICE_URL=http://127.0.0.1:2\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// The synthetic clients exceed most limits, send few requests, and share no key with the commands that users try.
func TestDemoTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: Rules})
		if err != nil {
			t.Fatal(err)
		}
		set, err := rules.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		requests, denied := 0, map[string]int{}
		limiter, err := sluice.NewWithRules(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		control, next := admission.New(limiter, func() *rules.Set { return set }, admission.Config{}), apiHandler()
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, err := control.Admit(w, r, nil, admission.Try{})
			switch {
			case err != nil:
				admission.WriteError(w, r, err, nil)
			case a.Outcome == admission.Denied:
				mu.Lock()
				denied[a.Rule]++
				mu.Unlock()
				a.WriteDenial(w, r)
				a.Done(r.Context(), http.StatusTooManyRequests)
			default:
				a.SetHeaders(w.Header(), r)
				a.Serve(next, w, r)
			}
		})
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		sendTraffic(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			requests++
			mu.Unlock()
			if strings.HasPrefix(r.RemoteAddr, "127.") || r.Header.Get("X-User") == "you" {
				t.Errorf("a synthetic client has the key of a user: %s %s", r.RemoteAddr, r.Header.Get("X-User"))
			}
			handler.ServeHTTP(w, r)
		}))
		if requests < 10*60*2 || requests > 10*60*10 {
			t.Errorf("%d requests in 10 minutes", requests)
		}
		for _, rule := range []string{
			"posts-per-user", "accounts-per-ip", "failed-logins-per-ip", "rewards-per-device", "exports-per-user", "downloads-per-user",
		} {
			if denied[rule] == 0 {
				t.Errorf("no client exceeds the limit of %s: %v", rule, denied)
			}
		}
	})
}
