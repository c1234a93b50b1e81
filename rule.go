package sluice

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sluiceproject/sluice/internal/group"
)

// Accuracy selects how instances share a limit in a [RemoteStore].
type Accuracy uint8

const (
	AccuracyExact    Accuracy = iota // every take at the store, atomically: admitted ≤ limit
	AccuracyLease                    // instances lease parts of the quota and count in memory: admitted ≤ limit, unused leases may be wasted
	AccuracyEventual                 // instances decide from local estimates that they sync: admitted ≤ limit + rate × [MaxStaleness]
)

// FailMode selects how takes are decided while the store is unavailable.
type FailMode uint8

const (
	FailLocal  FailMode = iota // count in this process (local fallback)
	FailOpen                   // allow (fail open)
	FailClosed                 // deny (fail closed)
)

// Rule is a named limit. Create it with [NewRule]. It is immutable and may be shared.
type Rule struct {
	// Name is part of every stored key. The limit's numbers are not: changing them keeps the usage. Another name or
	// another kind of algorithm starts from zero.
	Name         string
	Limit        Limit
	Accuracy     Accuracy
	OnFailure    FailMode
	Shadow       bool // shadow mode: decided and reported, never enforced
	ChargeDenied bool // denied takes are charged too; a sliding log then records them, as in its classic description

	info *group.Rule // the rule for the internal packages; set by NewRule
}

// MaxRuleName is the maximum length of a rule's name in bytes.
const MaxRuleName = 256

// NewRule validates a rule and returns it ready for use. The error joins all that is invalid.
func NewRule(r Rule) (*Rule, error) {
	var faults []error
	switch {
	case r.Name == "":
		faults = append(faults, errors.New(`sluice: rule: Name is empty: use a name such as "api" or "logins-per-ip"`))
	case len(r.Name) > MaxRuleName:
		faults = append(faults, fmt.Errorf("sluice: rule %.40q…: Name has %d bytes: use at most %d", r.Name, len(r.Name), MaxRuleName))
	}
	if r.OnFailure > FailClosed {
		faults = append(faults, fmt.Errorf("sluice: rule %q: OnFailure: unknown fail mode: use FailLocal, FailOpen or FailClosed", r.Name))
	}
	switch {
	case r.Accuracy != AccuracyExact && r.Limit.Algorithm == Concurrency:
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: a concurrency limit is counted only by the store: use AccuracyExact", r.Name))
	case r.Accuracy != AccuracyExact && r.Limit.withDefaults().Initial != 0:
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: with Limit.Initial only the store can tell which keys are new: use AccuracyExact, or leave Initial out of the limit", r.Name))
	case r.Accuracy == AccuracyLease && !r.Limit.supportsLease():
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: AccuracyLease is supported for a FixedWindow without SoftExcess and a continuously refilled bucket only: use AccuracyExact", r.Name))
	case r.Accuracy == AccuracyEventual && !r.Limit.supportsEventual():
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: AccuracyEventual is supported for a FixedWindow without SoftExcess, a SlidingWindowCounter without SubWindows and a continuously refilled bucket only: use AccuracyExact", r.Name))
	case r.Accuracy > AccuracyEventual:
		faults = append(faults, fmt.Errorf("sluice: rule %q: Accuracy: unknown accuracy: use AccuracyExact, AccuracyLease or AccuracyEventual", r.Name))
	}
	if r.ChargeDenied && r.Limit.Algorithm == Concurrency {
		faults = append(faults, fmt.Errorf("sluice: rule %q: ChargeDenied is not supported with a concurrency limit: denied requests hold no permit", r.Name))
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

// Must returns v, or panics if err is not nil. It is for limits and rules that are constants of a program.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
