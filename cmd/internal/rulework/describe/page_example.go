package describe

import (
	"fmt"
	"slices"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/examples"
	"github.com/sluiceproject/sluice/rules"
)

// publicHeader is a header that callers get.
type publicHeader struct {
	Name    string `json:"name"`
	On      string `json:"on"` // which responses have it
	Meaning string `json:"meaning"`
}

// denied stands for the statuses of requests over a limit; see nameStatuses.
const denied = "{denied}"

var publicHeaders = []publicHeader{
	{"X-Ratelimit-Limit", "all", "how much a window, or a burst, holds"},
	{"X-Ratelimit-Remaining", "all", "how much of it is left"},
	{"X-Ratelimit-Reset", "all", "seconds until all of it is there again; on " + denied + ", until a retry can succeed, and not sent if none can"},
	{"X-Ratelimit-Retry-After", denied, "seconds until a retry can succeed"},
	{"Retry-After", denied, "the same"},
	{"Ratelimit-Policy", "all", "the limits that apply: name, quota (q) and window in seconds (w)"},
	{"Ratelimit", "all", "of each, on " + denied + " of those that denied: name, what remains (r) and for how many seconds (t)"},
	{
		"X-Ratelimit-Degraded", "any", "sent only if the counts did not decide: local (one server counted by itself), open (allowed uncounted), " +
			"closed (503) or suspended (the limit is off)",
	},
}

// outcomeHeaders are the headers of outcomes that only some rules have, and what such an outcome means.
var outcomeHeaders = []struct {
	when, intro string
	headers     []publicHeader
}{
	{
		examples.Queued, "Some requests over a limit are queued instead: 202 Accepted. They are carried out later. Do not send them again; " +
			"GET the status URL for the result.",
		[]publicHeader{
			{"Location", "202", "the status URL"},
			{"Retry-After", "202", "seconds until there may be room for the request"},
		},
	},
	{
		examples.Delayed, "Some requests over a limit are delayed: the response comes later, when there is room. If too many wait, or it would wait for too long, " +
			"it is " + denied + " at once.",
		[]publicHeader{{"X-Ratelimit-Delay", "after a delay", "seconds that the request has waited"}},
	},
	{
		examples.Unavailable, "While requests cannot be counted, some are answered with 503 Service Unavailable and are not carried out. " +
			"Such responses have no counts.",
		[]publicHeader{
			{"Retry-After", "503", "seconds until a retry may succeed"},
			{"X-Ratelimit-Retry-After", "503", "the same"},
		},
	},
}

// addExamples records the responses of the rules. The page shows one of each kind.
func (d *Page) addExamples(set *rules.Set, public []*rules.Rule) {
	for i, r := range public {
		recorded, err := examples.Record(set, r)
		if err != nil {
			d.Advice = append(d.Advice, fmt.Sprintf("%v: rule %s has no example: %v", r.Pos, r.Name, err))
			continue
		}
		d.Limits[i].Examples = append(d.Limits[i].Examples, recorded...)
		for _, e := range recorded {
			if !slices.ContainsFunc(d.Examples, func(o examples.Response) bool { return o.When == e.When && o.Status == e.Status }) {
				d.Examples = append(d.Examples, e)
			}
		}
	}
	for _, o := range outcomeHeaders {
		if slices.ContainsFunc(d.Examples, func(e examples.Response) bool { return e.When == o.when }) {
			d.Headers = append(d.Headers, o.headers...)
			d.Intro = append(d.Intro, o.intro)
		}
	}
}
