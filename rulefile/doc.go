// Package rulefile reads rules from YAML files, in Sluice's format and in that of Envoy's rate limit service.
//
//	loaded, err := rulefile.Load(rulefile.Options{}, "rules")
//
// A file with a domain key at the top is in Envoy's format; all others are in Sluice's. The files of a directory form one
// configuration: each may use the attributes and lists of the others, and their rules are in the order of the file names.
// All errors are reported at once, each a [*rules.Error] with file, line, column and what to write instead.
//
// Files are bounded in size, depth and number of values. Unknown keys are errors, because a misspelt limit would otherwise
// not be enforced.
package rulefile
