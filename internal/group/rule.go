package group

import (
	"errors"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// Accuracy, FailMode and Source are package sluice's of the same names.
type (
	Accuracy uint8
	FailMode uint8
	Source   uint8
)

const (
	AccuracyExact Accuracy = iota
	AccuracyLease
	AccuracyEventual
)

const (
	FailLocal FailMode = iota
	FailOpen
	FailClosed
)

const (
	SourceStore Source = iota
	SourceDenyCache
	SourceLease
	SourceEventual
	SourceFailLocal
	SourceFailOpen
	SourceFailClosed
)

// Package sluice has these errors under the same names.
var (
	ErrUnavailable = errors.New("sluice: store is unavailable")
	ErrInvalid     = errors.New("sluice: invalid call")
)

const (
	// MaxCost bounds the cost of one take.
	MaxCost = 1 << 50
	// MaxDelay bounds how far ahead a take may reserve.
	MaxDelay = 366 * 24 * time.Hour
)

// Rule is what there is to know of a rule besides its numbers. It does not change.
type Rule struct {
	ID           RuleID
	Name         string
	Accuracy     Accuracy
	OnFailure    FailMode
	Shadow       bool
	ChargeDenied bool
	Public       any // the rule as users have it: a *sluice.Rule

	registered Registered
}

// Known is what a store's registry knows of the numbers that the rule has and has had there.
func (r *Rule) Known(of *Registry) *Known { return r.registered.Known(of, r.ID) }

// Op is a take of the rule under some numbers.
func (r *Rule) Op(p *step.Params, key, hashTag string, cost int64) Op {
	return Op{
		Rule: r.ID, By: r, Key: key, HashTag: hashTag, Params: p, Shadow: r.Shadow,
		Request: step.Request{Cost: cost, Charge: r.ChargeDenied && p.Kind != step.Permits},
	}
}
