package sluice_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/sluiceproject/sluice"
)

// A permit and a reservation that no limiter made hold nothing: no method panics, and there is nothing to give back. So it is
// for those that are nil because an error was not looked at.
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
			for range 2 { // the second finds nothing changed by the first
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
		// To return nil would have a caller that tries until it is allowed try for ever.
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
	// A decision that says it is allowed, and no limiter to settle at: what was spent would be lost without a word.
	r := &sluice.Reservation{Decision: sluice.Decision{Allowed: true, Granted: 1}}
	if err := r.Settle(t.Context(), 3); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("a reservation of a decision: Settle: %v", err)
	}
}
