// Package rulefile reads rules from YAML files: Sluice's own format, and the one of Envoy's rate limit service.
//
//	loaded, err := rulefile.Load(rulefile.Options{}, "rules")
//
// A file with a domain key at its top is in Envoy's format; all others are in Sluice's own. The files of a directory
// count as one: attributes and lists of any of them can be used in all, and their rules follow each other in the order
// of the files' names. Everything that is wrong with them is reported at once, each fault a [*rules.Error] with the
// file, the line and the column, and with what to write instead.
//
// Files are bounded in size, depth and number of values, and unknown keys are errors: a misspelt limit that is not
// enforced would be worse than one that is refused.
package rulefile
