package rules

import (
	"strings"

	"github.com/sluiceproject/sluice"
)

// ActualCost says where an answer tells what its request has really cost. Until then the rule's Cost is charged, as an
// estimate. What was not needed is given back, and what was needed beyond it is charged, and may go into debt.
type ActualCost struct {
	Pos    Position
	Header string // a header of the answer, or a trailer
	// JSON is where a field of the answer's body is: "usage.total_tokens". In a stream of events or of lines, the last
	// that has it counts.
	JSON string
	// Default is what an answer costs that does not say. Without it the estimate stays.
	Default     *int64
	StripHeader bool // callers do not get to see Header
}

func (c *compiler) actualCost(r *Rule) {
	s := r.ActualCost
	if s == nil {
		return
	}
	switch {
	case (s.Header == "") == (s.JSON == ""):
		c.fault(s.Pos, "settle: write either header: X-Tokens-Used or json: usage.total_tokens")
	case s.StripHeader && s.Header == "":
		c.fault(s.Pos, "settle: hide: only a header can be hidden")
	case s.JSON != "" && strings.Contains("."+s.JSON+".", ".."):
		c.fault(s.Pos, "settle: json: %q has an empty name: write the names of fields with dots between them, such as usage.total_tokens", s.JSON)
	}
	if s.Default != nil && (*s.Default < 0 || *s.Default > sluice.MaxCost) {
		c.fault(s.Pos, "settle: default: %d is not between 0 and 2^50", *s.Default)
	}
}
