// Package schematest holds the JSON Schemas of rule files to what rulefile reads. It has tests and no code, and is not a
// part of rulefile because it needs a validator of schemas, which users of the library should not have to download.
package schematest
