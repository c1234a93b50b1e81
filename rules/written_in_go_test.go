package rules_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// inGo returns a valid configuration in which every field of an enum type is reached.
func inGo() rules.Config {
	limits := func() []rules.Limit { return []rules.Limit{{Limit: sluice.PerHour(5)}} }
	return rules.Config{
		Rules: []rules.Rule{{
			Name: "posts", Per: per("header:X-User", "header:X-Plan"), Limits: limits(),
			Tiers:     &rules.Tiers{By: rules.Ref{Name: "header:X-Plan"}, Limits: map[string][]rules.Limit{"pro": limits()}},
			Overrides: []rules.Override{{Key: []string{"ada", "pro"}, Limits: limits()}},
		}},
		Priorities: []rules.PriorityRule{{Match: rules.Match{Predicates: []rules.Predicate{{Ref: rules.Ref{Name: "method"}, Values: []string{"GET"}}}}}},
		Domains:    []rules.Domain{{Name: "auth", Descriptors: []rules.DescriptorRule{{Key: "user", Limits: limits()}}}},
	}
}

// enums calls found with each field of an enum type of the packages rules and sluice, and its path.
func enums(v reflect.Value, path string, found func(path string, field reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				enums(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), found)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			enums(v.Index(i), path, found)
		}
	case reflect.Map: // of slices, whose elements can be set
		for _, key := range v.MapKeys() {
			enums(v.MapIndex(key), path, found)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			enums(v.Elem(), path, found)
		}
	case reflect.Uint8, reflect.Int8:
		if v.CanSet() && v.Type().PkgPath() != "" {
			found(path, v)
		}
	}
}

// A constant that does not exist is an error that names the rule and the field. Otherwise it would be read as another
// one: a request that the rule rejects, for example, would be allowed.
func TestUnknownConstants(t *testing.T) {
	if _, err := rules.New(inGo()); err != nil {
		t.Fatal(err)
	}
	var paths []string
	cfg := inGo()
	enums(reflect.ValueOf(&cfg), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	if len(paths) < 20 {
		t.Fatalf("only %d fields were found: %q", len(paths), paths)
	}
	for i, path := range paths {
		cfg, number := inGo(), 0
		enums(reflect.ValueOf(&cfg), "", func(_ string, field reflect.Value) {
			if number == i {
				if field.CanUint() {
					field.SetUint(99)
				} else {
					field.SetInt(99)
				}
			}
			number++
		})
		_, err := rules.New(cfg)
		var fault *rules.Error
		if !errors.As(err, &fault) {
			t.Errorf("%s: 99 is accepted: %v", path, err)
			continue
		}
		list, _, _ := strings.Cut(path, ".")
		want := map[string]string{"Rules": `rule "posts"`, "Domains": `rule "auth`, "Priorities": "entry 1"}[list]
		field := path[strings.LastIndexByte(path, '.')+1:]
		plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
		if !strings.Contains(err.Error(), want) || !strings.Contains(plain(err.Error()), plain(field)) {
			t.Errorf("%s: the error does not name %s and the field: %v", path, want, err)
		}
	}
}

// Errors and warnings about a configuration that was not read from a file name a rule, or the number of an entry.
func TestPlacesInGo(t *testing.T) {
	limit := []rules.Limit{{Limit: sluice.PerHour(5)}}
	get := rules.Match{Predicates: []rules.Predicate{{Ref: rules.Ref{Name: "method"}, Values: []string{"GET"}}}}
	attribute := rules.Attribute{Name: "user", Sources: []rules.Ref{{Name: "header:X-User"}}}
	for want, cfg := range map[string]rules.Config{
		`rule "a": a rule with this name is already there`:               {Rules: []rules.Rule{{Name: "a", Limits: limit}, {Name: "a", Limits: limit}}},
		`entry 2 of rules: the rule has no name`:                         {Rules: []rules.Rule{{Name: "a", Limits: limit}, {Limits: limit}}},
		`attribute "user" is declared twice, first above:`:               {Attributes: []rules.Attribute{attribute, attribute}},
		`load_shedding: an entry named "api" is already there`:           {AdaptiveLimits: []rules.AdaptiveLimit{{Name: "api"}, {Name: "api"}}},
		`entry 2 of load_shedding: load_shedding: the entry has no name`: {AdaptiveLimits: []rules.AdaptiveLimit{{Name: "api"}, {}}},
		`entry 2 of deny: deny: an entry without conditions`:             {DenyList: []rules.Match{get, {}}},
		`entry 1 of allow: allow: an entry without conditions`:           {AllowList: []rules.Match{{}}},
		`entry 1 of priorities: priorities: an entry without conditions`: {Priorities: []rules.PriorityRule{{}}},
		`the rule of Config.Rules also has the name "auth/user"`: {
			Rules:   []rules.Rule{{Name: "auth/user", Limits: limit}},
			Domains: []rules.Domain{{Name: "auth", Descriptors: []rules.DescriptorRule{{Key: "user", Limits: limit}}}},
		},
	} {
		_, err := rules.New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	for want, cfg := range map[string]rules.Config{
		`the deny list matches all of its requests, in entry 1`:                                            {DenyList: []rules.Match{get}, Rules: []rules.Rule{{Name: "a", Match: get, Limits: limit}}},
		`the allow list matches all of its requests, in entry 2`:                                           {AllowList: []rules.Match{{Predicates: []rules.Predicate{{Ref: rules.Ref{Name: "method"}, Values: []string{"POST"}}}}, get}, Rules: []rules.Rule{{Name: "a", Match: get, Limits: limit}}},
		`can never deny: rule "a" of this set has the same keys`:                                           {Rules: []rules.Rule{{Name: "a", Limits: limit}, {Name: "b", Limits: []rules.Limit{{Limit: sluice.PerHour(9)}}}}},
		`load_shedding: b is never reached: the entry with number 1 before it matches all of its requests`: {AdaptiveLimits: []rules.AdaptiveLimit{{Name: "a"}, {Name: "b"}}},
	} {
		set, err := rules.New(cfg)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		var texts []string
		for _, w := range set.Warnings() {
			texts = append(texts, w.Rule+": "+w.Msg)
		}
		if all := strings.Join(texts, "\n"); !strings.Contains(all, want) {
			t.Errorf("want %s, got\n%s", want, all)
		}
	}
}
