package simulate

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/rules"
)

// kinds maps the prefixes of references in rules to kinds of fields.
var kinds = map[string]rules.FieldKind{
	"method": rules.FieldMethod, "host": rules.FieldHost, "path": rules.FieldPath, "basic_user": rules.FieldBasicUser, "header": rules.FieldHeader,
	"query": rules.FieldQuery, "cookie": rules.FieldCookie, "claim": rules.FieldClaim, "attr": rules.FieldAttr,
}

// fieldOf returns the field of a reference such as "header:X-User".
func fieldOf(ref string) (rules.Field, bool) {
	kind, name, _ := strings.Cut(ref, ":")
	k, ok := kinds[kind]
	if k == rules.FieldHeader {
		name = textproto.CanonicalMIMEHeaderKey(name)
	}
	return rules.Field{Kind: k, Name: name}, ok
}

// userField parses Config.User.
func userField(ref string) (*rules.Field, error) {
	if ref == "" {
		return nil, nil
	}
	f, ok := fieldOf(ref)
	if !ok || f.Name == "" || f.Kind == rules.FieldPath {
		return nil, fmt.Errorf("%q cannot identify a user: write header:NAME, cookie:NAME, claim:NAME, query:NAME or attr:NAME", ref)
	}
	return &f, nil
}

// asks returns the references that a rule uses, each once.
func asks(r *rules.Rule) []string {
	var all []string
	add := func(ref string) {
		if ref != "" && !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	for _, m := range append([]rules.Match{r.Match}, r.Except...) {
		for i := range m.Predicates {
			add(m.Predicates[i].Ref.Name)
		}
	}
	for _, ref := range r.Per {
		add(ref.Name)
	}
	if r.Tiers != nil {
		add(r.Tiers.By.Name)
	}
	if r.Cost.From != nil {
		add(r.Cost.From.Name)
	}
	return all
}

// sourcesOf returns the references that a rule uses, attributes of the rule set replaced by their sources.
func (r *replay) sourcesOf(rule *rules.Rule) (all []string) {
	for _, ref := range asks(rule) {
		from := []rules.Ref{{Name: ref}}
		for i := range r.set.Config().Attributes {
			if a := &r.set.Config().Attributes[i]; a.Name == ref {
				from = a.Sources
			}
		}
		for _, f := range from {
			if !slices.Contains(all, f.Name) {
				all = append(all, f.Name)
			}
		}
	}
	return all
}

// wants notes the headers and fields of a rule that are looked up in the lines of the log.
func (r *replay) wants(rule *rules.Rule) {
	for _, ref := range r.sourcesOf(rule) {
		f, ok := fieldOf(ref)
		if ok && known(&f, r.user) == 0 && !slices.ContainsFunc(r.unseen, func(o rules.Field) bool { return o.Kind == f.Kind && o.Name == f.Name }) {
			r.unseen = append(r.unseen, f)
		}
	}
}

// lookUp removes the fields that a line has from unseen.
func (r *replay) lookUp(e *logs.Entry) {
	r.unseen = slices.DeleteFunc(r.unseen, func(f rules.Field) bool {
		_, ok := fieldValue(e, &f)
		return ok
	})
}

// missingFields returns the references of a rule that no line of the log contains.
func (r *replay) missingFields(rule *rules.Rule) []string {
	lacks := []string{}
	for _, ref := range r.sourcesOf(rule) {
		if !r.sees(ref) {
			lacks = append(lacks, ref)
		}
	}
	return lacks
}

func (r *replay) sees(ref string) bool {
	if ref == "ip" {
		return r.facts&hasClient != 0
	}
	f, ok := fieldOf(ref)
	if fact := known(&f, r.user); fact != 0 || !ok {
		return r.facts&fact != 0
	}
	return !slices.ContainsFunc(r.unseen, func(o rules.Field) bool { return o.Kind == f.Kind && o.Name == f.Name })
}
