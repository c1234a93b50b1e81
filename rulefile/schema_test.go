package rulefile_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
)

// noStart are words that no description starts with: prepositions, pronouns, question words and conjunctions.
var noStart = strings.Fields("about after against among at because before behind below beside between beyond by during except for from " +
	"how if in inside instead into it its of off on onto over per since so that these they this those through to under unless until " +
	"what when where whether which while who whom whose why with within without")

// Editors show titles and descriptions next to a key, so that each is a noun phrase or an imperative.
func TestSchemaDescriptions(t *testing.T) {
	for _, kind := range []string{"rules", "envoy", "test"} {
		text, err := rulefile.Schema(kind)
		if err != nil {
			t.Fatal(err)
		}
		var schema any
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		found := 0
		var walk func(pointer string, v any)
		walk = func(pointer string, v any) {
			switch v := v.(type) {
			case map[string]any:
				for key, value := range v {
					walk(pointer+"/"+key, value)
					text, ok := value.(string)
					if !ok || key != "description" && key != "title" {
						continue
					}
					found++
					first := strings.ToLower(strings.Trim(strings.Fields(text + " ")[0], ",.:;"))
					if slices.Contains(noStart, first) {
						t.Errorf("%s%s starts with %q: write a noun phrase or an imperative: %s", kind, pointer, first, text)
					}
					if key == "description" && !strings.HasSuffix(text, ".") {
						t.Errorf("%s%s does not end with a full stop: %s", kind, pointer, text)
					}
				}
			case []any:
				for _, value := range v {
					walk(pointer, value)
				}
			}
		}
		walk("", schema)
		if found < 20 {
			t.Errorf("%s has %d descriptions", kind, found)
		}
	}
}
