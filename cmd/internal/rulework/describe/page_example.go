package describe

import (
	"fmt"
	"slices"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/examples"
	"github.com/sluiceproject/sluice/rules"
)

// publicHeader is a response header that clients get.
type publicHeader struct {
	Name    string `json:"name"`
	On      string `json:"responses"` // which responses have it
	Meaning string `json:"meaning"`
}

// denied is the placeholder for the statuses of requests over a limit; see nameStatuses.
const denied = "{denied}"

var publicHeaders = []publicHeader{
	{"X-Ratelimit-Limit", "all", "quota of a window, or size of a burst"},
	{"X-Ratelimit-Remaining", "all", "remaining quota"},
	{"X-Ratelimit-Reset", "all", "seconds until the quota is fully reset; on " + denied + ", until a retry can succeed, and absent if no retry can"},
	{"X-Ratelimit-Retry-After", denied, "seconds until a retry can succeed"},
	{"Retry-After", denied, "same as X-Ratelimit-Retry-After"},
	{"Ratelimit-Policy", "all", "the limits that apply: name, quota (q) and window in seconds (w)"},
	{"Ratelimit", "all", "state of each limit, on " + denied + " of the denying limits only: name, remaining quota (r) and the seconds that it must last (t); on " + denied + ", seconds until a retry can succeed"},
	{
		"X-Ratelimit-Degraded", "any", "present only if the shared counts did not decide: local (one server counted alone), open (allowed without counting), " +
			"closed (503) or suspended (limit not enforced)",
	},
}

// outcomeHeaders are the headers of outcomes that only some rules have, with a description of the outcome.
var outcomeHeaders = []struct {
	when, intro string
	headers     []publicHeader
}{
	{
		examples.Queued, "Some requests over a limit are queued instead: 202 Accepted. They are processed later. Do not send them again; " +
			"GET the status URL for the result.",
		[]publicHeader{
			{"Location", "202", "the status URL"},
			{"Retry-After", "202", "seconds until the request may be processed"},
		},
	},
	{
		examples.Delayed, "Some requests over a limit are delayed: the response comes later. If too many requests wait, or the delay would be too long, " +
			"the response is " + denied + " at once.",
		[]publicHeader{{"X-Ratelimit-Delay", "delayed", "seconds by which the request was delayed"}},
	},
	{
		examples.Unavailable, "While requests cannot be counted, some get 503 Service Unavailable and are not processed. " +
			"These responses contain no quota.",
		[]publicHeader{
			{"Retry-After", "503", "seconds until a retry may succeed"},
			{"X-Ratelimit-Retry-After", "503", "same as Retry-After"},
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
