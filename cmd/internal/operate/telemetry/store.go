package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluiceproject/sluice"
)

// Store returns a store that traces the calls of sampled requests to s, if s is a [sluice.RemoteStore]. The result
// implements the same optional interfaces as s.
func (t *Traces) Store(s sluice.Store, kind string) sluice.Store {
	remote, ok := s.(sluice.RemoteStore)
	if t == nil || !ok {
		return s
	}
	traced := tracedStore{remote, t.tracer, trace.WithAttributes(attribute.String("sluice.store_kind", kind))}
	keys, resets := s.(sluice.StoreAdmin)
	lister, lists := s.(sluice.BucketLister)
	switch {
	case resets && lists:
		return struct {
			tracedStore
			sluice.StoreAdmin
			sluice.BucketLister
		}{traced, keys, lister}
	case resets:
		return struct {
			tracedStore
			sluice.StoreAdmin
		}{traced, keys}
	}
	return traced
}

type tracedStore struct {
	sluice.RemoteStore
	tracer trace.Tracer
	kind   trace.SpanStartEventOption
}

func (s tracedStore) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return s.RemoteStore.Apply(ctx, takes, out)
	}
	ctx, span := s.tracer.Start(ctx, "store", trace.WithSpanKind(trace.SpanKindClient), s.kind)
	defer span.End()
	span.SetAttributes(attribute.Int("sluice.takes", len(takes)))
	err := s.RemoteStore.Apply(ctx, takes, out)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		span.SetStatus(codes.Error, "timeout")
	case err != nil: // the text of the error is in the log
		span.SetStatus(codes.Error, "failed")
	}
	return err
}
