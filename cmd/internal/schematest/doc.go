// Package schematest compares the JSON Schemas of rule files, rule tests and the configuration of sluice serve with the code that
// reads these files, on examples and on random documents. It has tests and no code, and is not a part of rulefile because it needs
// a validator of schemas, which users of the library should not have to download.
package schematest
