package rulefile

import (
	"errors"
	"regexp"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// limitKeys are what rule files call the fields of a limit; others are called the same.
var limitKeys = map[string][]string{
	"Count":      {"rate", "requests_per_unit", "concurrent"},
	"Window":     {"window", "rate", "unit", "lease"},
	"SubWindows": {"sub_windows"},
	"SoftExcess": {"over"},
	"SoftPeriod": {"for"},
}

// checkLimit reports what is wrong with a limit's numbers. Compiling would find it as well, but in the words of Go and
// without the place.
func (f *file) checkLimit(n *strictyaml.Node, what string, l sluice.Limit) {
	_, err := l.Build()
	if err == nil {
		return
	}
	for _, fault := range flatten(err) {
		var e *sluice.LimitError
		if !errors.As(fault, &e) {
			f.Fault(n, "%s: %v", what, fault)
			continue
		}
		keys := limitKeys[e.Field]
		if keys == nil {
			keys = []string{strings.ToLower(e.Field)}
		}
		at, key := n, keys[0]
		for _, k := range keys {
			if node := n.Field(k); node != nil {
				at, key = node, k
				break
			}
		}
		f.Fault(at, "%s: %s: %s", what, key, fileWords.Replace(calendarCall.ReplaceAllString(e.Msg, "add that")))
	}
}

var calendarCall = regexp.MustCompile(`use PerCalendar\([^)]*\)`)

// fileWords are what the parts of Go that messages about limits mention are called in a rule file.
var fileWords = strings.NewReplacer(
	"WithAlgorithm(FixedWindow)", "algorithm: fixed_window", "WithAlgorithm(SlidingWindowCounter)", "algorithm: sliding_window_counter",
	"WithSoftExcess(2, 10*time.Second)", "over: 2 and for: 10s", "RefillInterval", "refill: interval",
	"AlignFirstRequest", "align: first_hit", "AlignCalendar", "align: calendar",
	"RoundDown or RoundNearest", "with rounding: down or nearest",
	"TokenBucket", "token_bucket", "FixedWindow", "fixed_window", "SlidingWindowCounter", "sliding_window_counter",
	"a sliding log", "a sliding_window_log", "a token bucket", "a token_bucket",
	"burst of Count", "burst as large as the rate", "Burst", "burst", "SoftExcess (how", "over (how", "SoftPeriod (how", "for (how",
)
