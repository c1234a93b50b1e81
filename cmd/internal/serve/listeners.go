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
)

// edges is what the edges of a service are built with.
type edges struct {
	*snapshot
	secret  []byte             // of reservations; nil: a random one
	refunds *adminapi.Guard    // nil: nothing is given back
	queue   *queue.Queue       // nil: there is none
	shed    *admission.Shedder // nil: there is no gateway
}

// listeners are how all are listened to, and the gateway that one of them hands its requests to.
type listeners struct {
	listen.Config
	gateway *gatewayRuntime // nil: there is none
}

// listeners makes them all. It returns the faults of all of them.
func (e edges) listeners(operators *operated, dry bool) (l listeners, faults []error) {
	l.Config = listen.Config{
		Log: e.log, DrainWait: e.cfg.Drain.Wait, DrainTimeout: e.cfg.Drain.Timeout,
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
	if e.cfg.RESP.Address != config.Off {
		other, err := e.resp()
		faults = append(faults, err)
		if err == nil {
			l.Custom = append(l.Custom, other)
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

// endpoint is where a server listens; perAddress 0 bounds no address.
func endpoint(address string, t config.TLS, most, perAddress int64) listen.Endpoint {
	return listen.Endpoint{
		Address: address, TLS: listen.TLS{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA},
		MaxConnections: int(most), MaxPerAddress: int(perAddress),
	}
}

// grpc is how Envoy is listened to.
func (e edges) grpc() listen.GRPC {
	g := &e.cfg.GRPC
	return listen.GRPC{
		Endpoint:   endpoint(g.Address, g.TLS, g.MaxConnections, config.Share(g.MaxPerAddress, g.MaxConnections)),
		MaxStreams: uint32(g.MaxStreams), MaxHeaderBytes: uint32(g.MaxHeaderBytes),
		MaxMessageBytes: e.rlsBounds().GRPCLimit(), MaxAge: g.MaxAge, MaxAgeGrace: g.MaxAgeGrace,
		HealthNames: []string{"ratelimit", rls.ServiceName}, Reflection: g.Reflection,
		Options: []grpc.ServerOption{rls.ServerOption()},
		Register: func(r grpc.ServiceRegistrar) {
			rls.Register(r, e.traces.RLS(e.decider()), e.rlsBounds(), countRLS(e.metrics))
		},
	}
}

// http is how those are listened to who ask over HTTP.
func (e edges) http() listen.HTTP {
	h := &e.cfg.HTTP
	requests := e.metrics.Requests("http", "200", "429") // to the check API
	return listen.HTTP{
		Endpoint: endpoint(h.Address, h.TLS, h.MaxConnections, config.Share(h.MaxPerAddress, h.MaxConnections)),
		Handler:  e.traces.HTTP(e.handler(requests)),
		Unready:  e.unready,
		Malformed: func(_ net.Addr, status int) string {
			requests.Done(strconv.Itoa(status), time.Now())
			return ""
		},
	}
}

// handler answers what is asked over HTTP, but for health.
func (e edges) handler(requests *metrics.Requests) http.Handler {
	mux := http.NewServeMux()
	e.handleAuth(mux)
	if e.cfg.Metrics.OnHTTP {
		mux.Handle("GET "+metricsPath, metricsHandler(e.snapshot))
	}
	e.handleCheck(mux, requests)
	return mux
}

// unready returns why requests of some rules cannot be served, or nil.
func (e edges) unready() error {
	if e.queue == nil {
		return nil
	}
	return e.queue.Err()
}

func (e edges) rlsBounds() rls.Bounds {
	return rls.Bounds{Descriptors: int(e.cfg.RLS.MaxDescriptors), Message: int(e.cfg.GRPC.MaxMessageBytes)}
}

func rlsOptions(c *config.RLS) rls.Options {
	o := rls.Options{
		Overrides: c.Overrides, NegativeHits: c.NegativeHits, Shadow: c.Shadow, Quota: c.Quota, Metadata: c.Metadata,
	}
	if c.Headers.Enabled {
		o.Headers = rls.HeaderNames{Limit: c.Headers.Limit, Remaining: c.Headers.Remaining, Reset: c.Headers.Reset}
	}
	if c.Clients != nil {
		o.Clients = rls.Clients{}
		for name, domains := range c.Clients {
			o.Clients[name] = rls.Domains{}
			for _, d := range domains {
				o.Clients[name][d] = true
			}
		}
	}
	return o
}
