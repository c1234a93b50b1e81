package sluice_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// The limits of a rule are suspended together, and a # in a quoted part of a name does not start the number of a limit.
func TestSuspendedNames(t *testing.T) {
	l, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": "a", "a#2": "a", `d/"x#1"`: `d/"x#1"`, `d/"x#1"#2`: `d/"x#1"`, `d/"x\"#1"#day`: `d/"x\"#1"`, `d/x#"a b"`: "d/x", `a"b#2`: `a"b`, `a"`: `a"`,
	} {
		l.Suspend(name)
		if got := l.SuspendedRules(); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q is suspended, want %q", name, got, want)
		}
		l.Resume(name)
	}
}
