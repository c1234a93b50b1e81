package suggest_test

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/suggest"
)

func TestClosestOrLonger(t *testing.T) {
	words := []string{"limit", "limits", "per", "actual_cost", "reservation"}
	for written, want := range map[string]string{
		"actual": "actual_cost", "res": "reservation", "re": "", "lim": "", "limti": "limit", "ACTUAL": "", "": "",
	} {
		if got := suggest.ClosestOrLonger(written, words); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}

func TestClosest(t *testing.T) {
	words := []string{"limit", "limits", "per", "match", "requests_per_unit"}
	for written, want := range map[string]string{
		"limti": "limit", "LIMIT": "limit", "limitss": "limits", "pre": "per", "mtach": "match",
		"requests_per_unti": "requests_per_unit",
		"x":                 "", "": "", "foo": "", "domain": "", strings.Repeat("limit", 50): "",
	} {
		if got := suggest.Closest(written, words); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}
