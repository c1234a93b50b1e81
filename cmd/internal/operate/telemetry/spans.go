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

// result is the result of a request or of a rule's decision: allowed, denied or shadow_denied.
const result = attribute.Key("sluice.result")

// RLS returns a service that traces the requests of next.
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
	case err != nil: // its text may contain values of the client
		span.SetStatus(codes.Error, code.String())
	case resp.Overall == rls.CodeOverLimit:
		span.SetAttributes(result.String("denied"))
	default:
		span.SetAttributes(result.String("allowed"))
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

// HTTP returns a handler that traces the requests of next. Spans are named by matched patterns, not by paths, because paths may
// contain keys.
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
		response := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		r = r.WithContext(ctx)
		next.ServeHTTP(response, r)
		if r.Pattern != "" && r.Pattern != "/" { // the handler of unknown paths
			span.SetName(r.Pattern)
			span.SetAttributes(attribute.String("http.route", r.Pattern))
		}
		span.SetAttributes(attribute.Int("http.response.status_code", response.status))
		if response.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(response.status))
		}
	})
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status  int
	written bool
}

func (a *statusWriter) WriteHeader(status int) {
	if !a.written && status >= http.StatusOK {
		a.status, a.written = status, true
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *statusWriter) Write(b []byte) (int, error) {
	a.written = true
	return a.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (a *statusWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Events returns events that add the decisions of rules to the spans of requests.
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
		span.SetAttributes(attribute.String("sluice.denied_by_rule", t.Rule.Name))
	}
	span.AddEvent("decision", trace.WithAttributes(
		attribute.String("sluice.rule", t.Rule.Name), result.String(how), attribute.String("sluice.source", d.Source.String())))
}
