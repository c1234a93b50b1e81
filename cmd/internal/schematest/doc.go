// Package schematest compares the JSON Schemas of rule files, test files and the configuration of sluice serve with the
// code that reads these files, on examples and on random documents. It contains only tests. It is not part of rulefile
// because it needs a schema validator, which users of the library should not have to download.
package schematest
