package serve

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// edges builds the listeners of a service.
type edges struct {
	*snapshot
	secret  []byte             // reservation secret; nil: random
	refunds *adminapi.Guard    // nil: refunds are rejected
	queue   *queue.Queue       // nil: no queue
	shed    *admission.Shedder // nil: no gateway
}

// listeners is the configuration of all listeners, and the gateway.
type listeners struct {
	listen.Config
	gateway  *gatewayRuntime       // nil: no gateway
	reloaded []*plainfile.Reloaded // token and password files
}

// listeners builds all listeners and returns all their errors. With dry, files are only checked.
func (e edges) listeners(operators *operated, dry bool) (l listeners, faults []error) {
	l.Config = listen.Config{
		Log: e.log, DrainDelay: e.cfg.Drain.Delay, DrainTimeout: e.cfg.Drain.Timeout,
		Exempt: func(a netip.Addr) bool { return admission.ClientIP(e.rules()).TrustsAddr(a) },
	}
	if e.cfg.GRPC.Address != config.Off {
		l.GRPC = e.grpc()
	}
	if e.cfg.HTTP.Address != config.Off {
		l.HTTP = e.http()
	}
	var err error
	if l.Admin, err = operators.listener(); err != nil {
		faults = append(faults, err)
	}
	if operators.token != nil {
		l.reloaded = append(l.reloaded, operators.token.Reloaded)
	}
	if e.refunds != nil {
		l.reloaded = append(l.reloaded, e.refunds.Token.Reloaded)
	}
	if e.cfg.RESP.Address != config.Off {
		other, password, err := e.resp()
		faults = append(faults, err)
		if err == nil {
			l.Custom = append(l.Custom, other)
		}
		if password != nil {
			l.reloaded = append(l.reloaded, password)
		}
	}
	if e.cfg.Gateway.Address != config.Off {
		l.gateway, err = e.openGateway(dry)
		faults = append(faults, err)
		if err == nil {
			l.Gateway = l.gateway.listener(&e.cfg.Gateway)
		}
	}
	return l, faults
}

// endpoint returns the endpoint of a listener. If perAddress is 0, connections per address are unlimited.
func endpoint(address string, t config.TLS, maxConns, perAddress int64) listen.Endpoint {
	return listen.Endpoint{
		Address: address, TLS: listen.TLS{Cert: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile},
		MaxConnections: int(maxConns), MaxPerAddress: int(perAddress),
	}
}

// grpc returns the listener for Envoy.
func (e edges) grpc() listen.GRPC {
	g := &e.cfg.GRPC
	return listen.GRPC{
		Endpoint:   endpoint(g.Address, g.TLS, g.MaxConnections, config.Share(g.MaxConnectionsPerAddress, g.MaxConnections)),
		MaxStreams: uint32(g.MaxStreams), MaxHeaderBytes: uint32(g.MaxHeaderSize),
		MaxMessageBytes: e.rlsBounds().GRPCLimit(), MaxAge: g.MaxConnectionAge, MaxAgeGrace: g.MaxConnectionAgeGrace,
		HealthNames: []string{"ratelimit", rls.ServiceName}, Reflection: g.Reflection,
		Options: []grpc.ServerOption{rls.ServerOption()},
		Register: func(r grpc.ServiceRegistrar) {
			rls.Register(r, e.traces.RLS(e.decider()), e.rlsBounds(), countRLS(e.metrics))
		},
	}
}

// http returns the HTTP listener.
func (e edges) http() listen.HTTP {
	h := &e.cfg.HTTP
	requests := e.metrics.Requests("http", "200", "429") // of the check API
	return listen.HTTP{
		Endpoint: endpoint(h.Address, h.TLS, h.MaxConnections, config.Share(h.MaxConnectionsPerAddress, h.MaxConnections)),
		Handler:  e.traces.HTTP(e.handler(requests)),
		Unready:  e.unready,
		Malformed: func(_ net.Addr, status int) string {
			requests.Done(strconv.Itoa(status), time.Now())
			return ""
		},
	}
}

// handler returns the handler of the HTTP listener, without health checks.
func (e edges) handler(requests *metrics.Requests) http.Handler {
	mux := http.NewServeMux()
	e.handleAuth(mux)
	if e.cfg.Metrics.HTTPListener {
		mux.Handle("GET "+metricsPath, metricsHandler(e.snapshot))
	}
	e.handleCheck(mux, requests)
	return mux
}

// unready returns the reason why the service is not ready, or nil: an unavailable queue.
func (e edges) unready() error {
	if e.queue == nil {
		return nil
	}
	return e.queue.Err()
}

func (e edges) rlsBounds() rls.Bounds {
	return rls.Bounds{Descriptors: int(e.cfg.RLS.MaxDescriptors), Message: int(e.cfg.GRPC.MaxMessageSize)}
}

func rlsOptions(c *config.RLS) rls.Options {
	o := rls.Options{
		Overrides: c.AcceptLimitOverrides, NegativeHits: c.AcceptNegativeHits, Shadow: c.ShadowMode, Quota: c.QuotaMode, Metadata: c.DynamicMetadata,
	}
	if c.Headers.Enabled {
		o.Headers = rls.HeaderNames{Limit: c.Headers.Limit, Remaining: c.Headers.Remaining, Reset: c.Headers.Reset}
	}
	if c.ClientDomains != nil {
		o.Clients = rls.Clients{}
		for name, domains := range c.ClientDomains {
			o.Clients[name] = rls.Domains{}
			for _, d := range domains {
				o.Clients[name][d] = true
			}
		}
	}
	return o
}
