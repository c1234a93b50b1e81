package storetest

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestLinearModel checks histories that a counter of 2 could produce, and some that it could not.
func TestLinearModel(t *testing.T) {
	take := func(call, back int64, allowed bool, remaining int64) porcupine.Operation {
		return porcupine.Operation{
			Input: counterInput{cost: 1}, Call: call, Output: counterOutput{allowed, remaining}, Return: back,
		}
	}
	peek := take(5, 6, true, 2)
	peek.Input = counterInput{}
	reset := porcupine.Operation{Input: counterInput{reset: true}, Call: 5, Output: counterOutput{}, Return: 6}
	tests := []struct {
		name    string
		history []porcupine.Operation
		ok      bool
	}{
		{"one after the other", []porcupine.Operation{take(1, 2, true, 1), take(3, 4, true, 0), take(5, 6, false, 0)}, true},
		{"at the same time, the later first", []porcupine.Operation{take(1, 4, true, 0), take(2, 3, true, 1)}, true},
		{"after a reset", []porcupine.Operation{take(1, 2, true, 1), take(3, 4, true, 0), reset, take(7, 8, true, 1)}, true},
		{"reset by the way", []porcupine.Operation{take(1, 2, true, 1), take(3, 9, true, 1), reset}, true},

		{"one too many", []porcupine.Operation{take(1, 2, true, 1), take(3, 4, true, 0), take(5, 6, true, 0)}, false},
		{"both read before either wrote", []porcupine.Operation{take(1, 3, true, 1), take(2, 4, true, 1)}, false},
		{"a stale read", []porcupine.Operation{take(1, 2, true, 1), take(3, 4, true, 0), peek}, false},
		{"denied too early", []porcupine.Operation{take(1, 2, true, 1), take(3, 4, false, 1)}, false},
		{"a reset that did nothing", []porcupine.Operation{take(1, 2, true, 1), take(3, 4, true, 0), reset, take(7, 8, false, 0)}, false},
		{"a reset that came too early", []porcupine.Operation{reset, take(7, 8, true, 1), take(9, 10, true, 1)}, false},
	}
	for _, tt := range tests {
		if err := checkLinear(tt.history, 2); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
