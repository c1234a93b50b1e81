package rulefile

import (
	"embed"
	"errors"
	"fmt"
)

//go:embed schema/*.schema.json
var schemas embed.FS

// Schema returns the JSON Schema (draft 7, which editors support) of a kind of file: "rules", "envoy" or "test".
// Editors use it to complete keys, describe them and mark mistakes. It is as strict as a schema can be: only reading
// finds errors that depend on declared names or on several numbers.
func Schema(kind string) ([]byte, error) {
	schema, err := schemas.ReadFile("schema/" + kind + ".schema.json")
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w %.40q", errNoSchema, kind)
	}
	return schema, nil
}

var errNoSchema = errors.New("no schema of kind")
