package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// A rule with an error is compiled without the parts that have one, so that one run finds all errors of a file.
// Decoders keep only parts without errors; the parts that depend on the others are removed here.

// reduced returns the rule without the parts that depend on parts with errors.
func (d *ruleDecoder) reduced() rules.Rule {
	r := d.r
	if r.Name == "" {
		r.Name = fmt.Sprintf("\x00%d", len(d.unnamed)) // no rule of a file can have this name
		d.unnamed[r.Name] = true
	}
	if d.breaks("match") {
		captured := func(ref rules.Ref) bool { return strings.HasPrefix(ref.Name, "path:") }
		if slices.ContainsFunc(r.Per, captured) {
			r.Per, r.Overrides = slices.DeleteFunc(slices.Clone(r.Per), captured), nil
		}
		if r.Tiers != nil && captured(r.Tiers.By) {
			r.Tiers = nil
		}
		if r.Cost.From != nil && captured(*r.Cost.From) {
			r.Cost = rules.Cost{}
		}
	}
	if d.breaks("per") {
		r.Overrides = nil
	}
	if d.breaks("denial") && r.Denial.Body == "" {
		r.Denial.ContentType = ""
	}
	if d.breaks("limit", "limits", "algorithm", "on_limit", "max_delay", "queue", "accuracy", "charge") {
		r.OnLimit, r.MaxDelay, r.Queue = rules.OnLimitDeny, 0, rules.QueueOptions{}
		r.Accuracy, r.ChargeDenied, r.ChargeStatus = sluice.AccuracyExact, false, nil
	}
	if len(r.Limits) == 0 || d.uncertain {
		r.Limits = []rules.Limit{{Pos: r.Pos, Limit: sluice.PerSecond(1)}}
		r.Overrides = nil
		if r.Tiers != nil {
			r.Tiers = &rules.Tiers{Pos: r.Tiers.Pos, By: r.Tiers.By}
		}
	}
	return r
}

// compileReduced adds the errors that compiling finds in the parts without errors.
func (p *parser) compileReduced() {
	p.declareMissing()
	_, err := rules.New(p.cfg)
	if err == nil {
		return
	}
	for _, e := range flatten(err) {
		if fault, ok := e.(*rules.Error); ok && p.unnamed[fault.Rule] {
			if fault.Rule = ""; fault.Msg == unusableName {
				continue
			}
		}
		p.faults = append(p.faults, e)
	}
}

// unusableName is the error of rules.New for a placeholder name of reduced.
const unusableName = "invalid name: use printable ASCII without space, #, quote and backslash"

// declareMissing declares attributes that rules refer to and that may have been declared where a file has an error.
func (p *parser) declareMissing() {
	declare := func(ref rules.Ref) {
		bare := slices.Contains(bareKeys, ref.Name) || strings.Contains(ref.Name, ":")
		if ref.Name == "" || bare || p.attributes[ref.Name] || !p.mayLose(ref.Name) {
			return
		}
		p.attributes[ref.Name] = true
		p.cfg.Attributes = append(p.cfg.Attributes, placeholder(ref.Pos, ref.Name))
	}
	for i := range p.cfg.Rules {
		r := &p.cfg.Rules[i]
		for _, ref := range r.Per {
			declare(ref)
		}
		if r.Tiers != nil {
			declare(r.Tiers.By)
		}
		if r.Cost.From != nil {
			declare(*r.Cost.From)
		}
	}
}

// mayLose reports whether an attribute may have been declared where the file has an error.
func (p *parser) mayLose(name string) bool {
	return p.partialAttributes || name != "" && strings.Contains(p.lostAttributes, name)
}

// placeholder returns an attribute whose declaration has an error. It stays declared, so that references to it are not
// errors.
func placeholder(pos rules.Position, name string) rules.Attribute {
	return rules.Attribute{Pos: pos, Name: name, Sources: []rules.Ref{{Pos: pos, Name: "attr:" + name}}}
}
