package rules_test

import (
	"net/url"
	"testing"
	"unicode"

	canonical "github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/rules"
)

// TestInvisibleCharacters tests every Unicode character: one that is invisible by its properties is rejected or
// ignored, anywhere in a name. Letters and digits are neither.
func TestInvisibleCharacters(t *testing.T) {
	set := mustSet(t, rules.Config{DenyList: []rules.Match{match(is("path", "/ab", "/❤️"))}})
	invisible, visible := 0, 0
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		// DerivedCoreProperties.txt: Default_Ignorable_Code_Point is Other_Default_Ignorable_Code_Point, Cf and
		// Variation_Selector, without a few of Cf. Controls and line separators are added.
		is := unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Cf, unicode.Cc, unicode.Zl, unicode.Zp)
		if !is && !unicode.In(r, unicode.L, unicode.Nd) {
			continue
		}
		spellings := []string{"/ab" + string(r), "/a" + string(r) + "b", "/" + string(r) + "ab", "/ab." + string(r), "/%61b" + url.PathEscape(string(r)) + "/"}
		if !is {
			spellings = spellings[:1]
		}
		for _, sent := range spellings {
			var m rules.MatchResult
			err := set.Match(req("GET "+sent), &m)
			denied := err != nil || m.Outcome == rules.MatchRejected
			if is {
				invisible++
				if !denied {
					t.Errorf("%q (%U) evades a rule for /ab", sent, r)
				}
			} else if visible++; err == nil && denied {
				t.Errorf("%q (%U) counts as /ab", sent, r)
			}
		}
		if _, err := canonical.CanonicalPath("/.." + string(r)); is && err == nil {
			t.Errorf("dots and %U are a name", r)
		}
	}
	for _, sent := range []string{"/❤️", "/❤"} { // emoji
		var m rules.MatchResult
		if err := set.Match(req("GET "+sent), &m); err != nil || m.Outcome != rules.MatchRejected {
			t.Errorf("%q: %v, %v", sent, m.Outcome, err)
		}
	}
	if invisible < 4000*5 || visible < 100_000 {
		t.Errorf("%d and %d were tried", invisible, visible)
	}
}
