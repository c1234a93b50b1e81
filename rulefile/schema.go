package rulefile

import (
	"embed"
	"errors"
	"fmt"
)

//go:embed schema/*.schema.json
var schemas embed.FS

// Schema returns the JSON Schema (draft 7, which is what editors know) of a kind of file: "rules", "envoy" or "test".
// With it editors complete keys, explain them and mark mistakes. It is as strict as reading is where a schema can be:
// what depends on names that are declared elsewhere, and on numbers that must fit each other, only reading finds.
func Schema(kind string) ([]byte, error) {
	schema, err := schemas.ReadFile("schema/" + kind + ".schema.json")
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w %.40q", errNoSchema, kind)
	}
	return schema, nil
}

var errNoSchema = errors.New("there is no schema of kind")
