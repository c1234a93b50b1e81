package sluice_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/sluiceproject/sluice"
)

// Permits and reservations that no limiter created, or that are nil because an error was ignored, hold nothing: no
// method panics.
func TestZeroPermitAndReservation(t *testing.T) {
	permit := sluice.Permit{}
	for name, v := range map[string]any{
		"nil Permit": (*sluice.Permit)(nil), "zero Permit": &permit,
		"nil Reservation": (*sluice.Reservation)(nil), "zero Reservation": &sluice.Reservation{},
		"Reservation of a Decision": &sluice.Reservation{Decision: sluice.Decision{Allowed: true, Granted: 1}},
	} {
		methods := reflect.ValueOf(v)
		for i := range methods.NumMethod() {
			call := methods.Method(i)
			args := make([]reflect.Value, call.Type().NumIn())
			for j := range args {
				args[j] = reflect.Zero(call.Type().In(j))
				if args[j].Kind() == reflect.Interface {
					args[j] = reflect.ValueOf(t.Context())
				}
			}
			for range 2 { // the first call changes nothing for the second
				func() {
					defer func() {
						if p := recover(); p != nil {
							t.Errorf("%s: %s panics: %v", name, methods.Type().Method(i).Name, p)
						}
					}()
					call.Call(args)
				}()
			}
		}
	}

	for name, r := range map[string]*sluice.Reservation{"nil": nil, "zero": {}} {
		if err := errors.Join(r.Settle(t.Context(), 3), r.SettleEach(t.Context(), nil), r.Cancel(t.Context())); err != nil {
			t.Errorf("%s: there is nothing to settle: %v", name, err)
		}
		if len(r.Decisions()) != 0 || r.Permit() != nil {
			t.Errorf("%s: %v, %v", name, r.Decisions(), r.Permit())
		}
		// If Retry returned nil, a caller that retries until it is allowed would never stop.
		if err := r.Retry(t.Context()); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: Retry: %v", name, err)
		}
		if err := r.Settle(t.Context(), -1); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: Settle at -1: %v", name, err)
		}
		if err := r.SettleEach(t.Context(), []int64{1}); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: SettleEach of a take that it does not have: %v", name, err)
		}
	}
	// An allowed decision without a limiter: returning nil would lose the charge silently.
	r := &sluice.Reservation{Decision: sluice.Decision{Allowed: true, Granted: 1}}
	if err := r.Settle(t.Context(), 3); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("a reservation of a decision: Settle: %v", err)
	}
}
