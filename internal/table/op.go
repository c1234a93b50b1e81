package table

import "github.com/sluiceproject/sluice/internal/step"

// RuleID is a digest of a rule's name. It is a struct because arrays do not travel in registers.
type RuleID struct{ A, B uint64 }

// Op is one take in integers: a key under a rule, and what is asked of it.
type Op struct {
	Rule    RuleID
	Key     string
	Params  *step.Params
	Request step.Request
	At      int64  // non-zero: settle or give back the take that was answered with this At
	ID      uint64 // non-zero: charge once
	Shadow  bool   // never vetoes the others
}
