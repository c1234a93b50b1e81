package rls

import "strconv"

// HeaderNames are the names of the headers that tell clients about their limit.
type HeaderNames struct{ Limit, Remaining, Reset string }

// DefaultHeaders are the names that Envoy's service uses.
var DefaultHeaders = HeaderNames{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}

// addHeaders tells of the descriptor of which the least remains, or of one that is over its limit and so decides.
func (d *Decider) addHeaders(s *Decided, resp *Response) {
	var told *Status
	decides := false
	for i := range resp.Statuses {
		st := &resp.Statuses[i]
		switch {
		case !st.HasLimit:
		case st.Code == CodeOverLimit && !d.quota(&s.Matched.Matches[i]):
			told, decides = st, true
		case !decides && (told == nil || st.Remaining < told.Remaining):
			told = st
		}
	}
	if told == nil {
		return
	}
	names := &d.options.Headers
	resp.Headers = append(resp.Headers,
		Header{names.Limit, strconv.FormatUint(uint64(told.Limit.Requests), 10)},
		Header{names.Remaining, strconv.FormatUint(uint64(told.Remaining), 10)},
		Header{names.Reset, strconv.FormatInt(told.Reset, 10)},
	)
}
