package rulefile_test

import (
	"encoding/json"
	"fmt"

	"github.com/sluiceproject/sluice/rulefile"
)

func ExampleFormat() {
	src := `rules:
- name:   posts
  # two at once
  limit: { rate: 2/s }
- name: reads
  limit: 300/min`
	formatted, err := rulefile.Format("rules.yaml", []byte(src))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s", formatted)
	// Output:
	// rules:
	//   - name: posts
	//     # two at once
	//     limit: {rate: 2/s}
	//
	//   - name: reads
	//     limit: 300/min
}

func ExampleSchema() {
	text, err := rulefile.Schema("rules")
	if err != nil {
		fmt.Println(err)
		return
	}
	var schema struct{ Title string }
	if err := json.Unmarshal(text, &schema); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(schema.Title)
	// Output: Sluice rule file
}
