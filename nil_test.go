package sluice_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// No method of a nil limiter, or of one that New did not create, panics.
func TestNilLimiter(t *testing.T) {
	for name, l := range map[string]*sluice.Limiter{"nil": nil, "zero": {}} {
		v := reflect.ValueOf(l)
		for i := range v.NumMethod() {
			method := v.Type().Method(i).Name
			f := v.Method(i)
			args := make([]reflect.Value, f.Type().NumIn())
			for j := range args {
				switch in := f.Type().In(j); in.Kind() {
				case reflect.Interface:
					args[j] = reflect.ValueOf(t.Context())
				case reflect.Int64:
					args[j] = reflect.New(in).Elem()
					args[j].SetInt(1)
				case reflect.String:
					args[j] = reflect.ValueOf("k")
				default:
					args[j] = reflect.Zero(in)
				}
			}
			if method == "Escalate" {
				args[2] = reflect.ValueOf(sluice.Escalation{Blocks: make([]time.Duration, 1)})
			}
			func() {
				defer func() {
					if r := recover(); r != nil {
						t.Errorf("%s: %s panics: %v", name, method, r)
					}
				}()
				var out []reflect.Value
				if f.Type().IsVariadic() {
					out = f.CallSlice(args)
				} else {
					out = f.Call(args)
				}
				if len(out) == 0 || method == "Close" { // Close succeeds, because there is nothing to close
					return
				}
				if err, ok := out[len(out)-1].Interface().(error); ok && (!errors.Is(err, sluice.ErrInvalid) || !strings.Contains(err.Error(), ": limiter ")) {
					t.Errorf("%s: %s: %v", name, method, err)
				} else if last := f.Type().Out(f.Type().NumOut() - 1); last == reflect.TypeFor[error]() && !ok {
					t.Errorf("%s: %s returns no error", name, method)
				}
			}()
		}
	}
}
