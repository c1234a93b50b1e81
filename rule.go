package sluice

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sluiceproject/sluice/internal/group"
)

// Accuracy is what a rule trades for speed when many processes share a store.
type Accuracy uint8

const (
	AccuracyExact    Accuracy = iota // one atomic step at the store: never more than the limit
	AccuracyLease                    // spend a leased part of the budget in memory: never more than the limit, a little may be stranded
	AccuracyEventual                 // decide from this process' count plus what others reported: over by rate × [MaxStaleness]
)

// FailMode is what happens to a rule's requests while the store cannot answer.
type FailMode uint8

const (
	FailLocal  FailMode = iota // count in this process
	FailOpen                   // allow
	FailClosed                 // deny
)

// Rule is a limit with a name. Make one with [NewRule]; it is immutable and meant to be shared.
type Rule struct {
	// Name is part of every stored key. The limit's numbers are not, so changing them keeps what was counted; a
	// changed name or a different kind of algorithm starts anew.
	Name         string
	Limit        Limit
	Accuracy     Accuracy
	OnFailure    FailMode
	Shadow       bool // decided and reported, never enforced
	ChargeDenied bool // denied requests are charged too; a sliding log then records them, as in its classic description

	info *group.Rule // the same, for the layers below; set by NewRule
}

// MaxRuleName is the longest name a rule may have, in bytes.
const MaxRuleName = 256

// NewRule checks a rule and returns it ready for use.
func NewRule(r Rule) (*Rule, error) {
	var faults []error
	switch {
	case r.Name == "":
		faults = append(faults, errors.New(`sluice: rule: Name is empty: name what is limited, such as "api" or "logins-per-ip"`))
	case len(r.Name) > MaxRuleName:
		faults = append(faults, fmt.Errorf("sluice: rule %.40q…: Name has %d bytes, at most %d are allowed", r.Name, len(r.Name), MaxRuleName))
	}
	if r.OnFailure > FailClosed {
		faults = append(faults, fmt.Errorf("sluice: rule %q: OnFailure: use FailLocal, FailOpen or FailClosed", r.Name))
	}
	switch {
	case r.Accuracy != AccuracyExact && r.Limit.Algorithm == Concurrency:
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: what is in flight is counted by the store alone: use AccuracyExact", r.Name))
	case r.Accuracy != AccuracyExact && r.Limit.withDefaults().Initial != 0:
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: only the store knows which keys are new: use AccuracyExact, or leave Initial out of the limit", r.Name))
	case r.Accuracy == AccuracyLease && !r.Limit.supportsLease():
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: only a hard FixedWindow and a continuously refilled bucket can be leased: use AccuracyExact", r.Name))
	case r.Accuracy == AccuracyEventual && !r.Limit.supportsEventual():
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: only a hard FixedWindow, a SlidingWindowCounter without SubWindows and a continuously refilled bucket can be AccuracyEventual: use AccuracyExact", r.Name))
	case r.Accuracy > AccuracyEventual:
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: use AccuracyExact, AccuracyLease or AccuracyEventual", r.Name))
	}
	if r.ChargeDenied && r.Limit.Algorithm == Concurrency {
		faults = append(faults, fmt.Errorf("sluice: rule %q: ChargeDenied: who was denied is not in flight: leave it out", r.Name))
	}
	limit, err := r.Limit.Build()
	if err != nil {
		faults = append(faults, fmt.Errorf("rule %q: %w", r.Name, err))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	r.Limit = *limit
	sum := sha256.Sum256([]byte(r.Name))
	r.info = &group.Rule{ID: group.RuleID{A: binary.LittleEndian.Uint64(sum[:]), B: binary.LittleEndian.Uint64(sum[8:])}}
	r.info = r.inIntegers()
	return &r, nil
}

// Must returns v, or panics if there is an error. It is for limits written in code, which are right or a bug.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
