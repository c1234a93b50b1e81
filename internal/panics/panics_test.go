package panics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/panics"
)

func TestRecover(t *testing.T) {
	before := panics.Recovered()
	load := func(index int) (err error) {
		defer panics.Recover(func(e *panics.Error) { err = fmt.Errorf("rules.yaml: %w", e) })
		_ = []int{1}[index]
		return nil
	}
	if err := load(0); err != nil || panics.Recovered() != before {
		t.Fatalf("without a panic: %v, %d recovered", err, panics.Recovered()-before)
	}
	err := load(7)
	var e *panics.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "index out of range [7]") || panics.Recovered() != before+1 {
		t.Fatalf("a panic is %v, %d recovered", err, panics.Recovered()-before)
	}
	args := panics.LogArgs(err)
	if len(args) != 2 || args[0] != "stack" || !strings.Contains(args[1].(string), "TestRecover") {
		t.Errorf("arguments of its log line: %q: want the stack with the function that panicked", args)
	}
	if args := panics.LogArgs(errors.New("no panic")); args != nil {
		t.Errorf("arguments of another error: %q", args)
	}
}
