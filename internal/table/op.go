package table

import "github.com/sluiceproject/sluice/internal/step"

// Op is one take in integers: a key under a rule, and what is asked of it.
type Op struct {
	Rule    [2]uint64 // digest of the rule's name
	Key     string
	Params  *step.Params
	Request step.Request
	At      int64  // non-zero: settle or give back the take that was answered with this At
	ID      uint64 // non-zero: charge once
	Shadow  bool   // never vetoes the others
}
