package telemetry

import (
	"context"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
)

// outcome is how a request, or a rule's decision, ended.
const outcome = attribute.Key("sluice.outcome")

// RLS traces what Envoy asks.
func (t *Traces) RLS(next rls.Service) rls.Service {
	if t == nil {
		return next
	}
	return tracedRLS{t, next}
}

type tracedRLS struct {
	*Traces
	next rls.Service
}

var rlsAttributes = trace.WithAttributes(
	attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", rls.ServiceName), attribute.String("rpc.method", "ShouldRateLimit"))

func (t tracedRLS) ShouldRateLimit(ctx context.Context, req *rls.Request, resp *rls.Response) error {
	ctx, span := t.tracer.Start(t.parents.Extract(ctx, incoming{ctx}), rls.ServiceName+"/ShouldRateLimit",
		trace.WithSpanKind(trace.SpanKindServer), rlsAttributes)
	defer span.End()
	err := t.next.ShouldRateLimit(ctx, req, resp)
	if !span.IsRecording() {
		return err
	}
	code := status.Code(err)
	span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
	switch {
	case err != nil: // its text may hold what the client sent
		span.SetStatus(codes.Error, code.String())
	case resp.Overall == rls.CodeOverLimit:
		span.SetAttributes(outcome.String("denied"))
	default:
		span.SetAttributes(outcome.String("allowed"))
	}
	return err
}

// incoming reads the metadata of a gRPC call.
type incoming struct{ ctx context.Context }

func (i incoming) Get(name string) string {
	if values := metadata.ValueFromIncomingContext(i.ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (incoming) Set(string, string) {}

func (incoming) Keys() []string { return nil }

// HTTP traces requests by the patterns that they match. Their paths are not told: there may be keys in them.
func (t *Traces) HTTP(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if !slices.Contains(methods, method) {
			method = "_OTHER"
		}
		ctx, span := t.tracer.Start(t.parents.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), method,
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("http.request.method", method)))
		defer span.End()
		if !span.IsRecording() {
			next.ServeHTTP(w, r)
			return
		}
		answer := &answer{ResponseWriter: w, status: http.StatusOK}
		r = r.WithContext(ctx)
		next.ServeHTTP(answer, r)
		if r.Pattern != "" {
			span.SetName(r.Pattern)
			span.SetAttributes(attribute.String("http.route", r.Pattern))
		}
		span.SetAttributes(attribute.Int("http.response.status_code", answer.status))
		if answer.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(answer.status))
		}
	})
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// answer notes the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
	told   bool
}

func (a *answer) WriteHeader(status int) {
	if !a.told && status >= http.StatusOK {
		a.status, a.told = status, true
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.told = true
	return a.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Events tell the traces of requests what their rules decided.
func (t *Traces) Events() sluice.Events {
	if t == nil {
		return sluice.Events{}
	}
	return sluice.Events{OnDecision: decided}
}

func decided(ctx context.Context, t sluice.Take, d sluice.Decision) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	how := "allowed"
	switch {
	case d.ShadowDenied:
		how = "shadow_denied"
	case !d.Allowed:
		how = "denied"
		span.SetAttributes(attribute.String("sluice.denied_by", t.Rule.Name))
	}
	span.AddEvent("decision", trace.WithAttributes(
		attribute.String("sluice.rule", t.Rule.Name), outcome.String(how), attribute.String("sluice.source", d.Source.String())))
}
