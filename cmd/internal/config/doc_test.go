package config_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

// notFirst are words that a description does not begin with. Descriptions are noun phrases or imperatives, because readers see
// them in tables and editors without the name of the section.
var notFirst = strings.Fields(`
about above after as at before below beside besides between beyond but by down during except for from in inside into of off on onto out
over per since through till to toward under until up upon via with within without
that this these those it its their they them he she his her
who whom whose whoever what whatever which how when whenever where why whether if
a an the also and or not is are was were be`)

var badDescription = regexp.MustCompile(`^[^a-z\x60A-Z0-9]|\.$|\s$|  `)

func TestDescriptions(t *testing.T) {
	for _, s := range config.Keys() {
		first, _, _ := strings.Cut(s.Doc, " ")
		first = strings.ToLower(strings.TrimRight(first, ",.:;"))
		if s.Doc == "" || slices.Contains(notFirst, first) || badDescription.MatchString(s.Doc) {
			t.Errorf("%s: %q: begin with a noun or an imperative, and end without a full stop", s.Name, s.Doc)
		}
	}
}
