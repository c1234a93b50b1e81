package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func TestArguments(t *testing.T) {
	for _, tt := range []struct{ args, want []string }{
		{[]string{"sluice", "check", "x"}, []string{"check", "x"}},
		{[]string{"/bin/ratelimit"}, []string{"ratelimit"}},
		{[]string{"/bin/ratelimit", "--whatever"}, []string{"ratelimit"}},
		{[]string{"sluice"}, nil},
		{nil, nil},
	} {
		if got := arguments(tt.args); !slices.Equal(got, tt.want) {
			t.Errorf("%q becomes %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestRatelimitSaysWhatIsWrong(t *testing.T) {
	t.Setenv("PORT", "eighty")
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"ratelimit"}, &stderr, &stderr); code != term.ExitWrong ||
		!strings.Contains(stderr.String(), "PORT: write a whole number") {
		t.Errorf("it ends with %d:\n%s", code, &stderr)
	}
}
