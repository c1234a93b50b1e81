// Package strictyaml reads YAML that people write by hand: with positions for every value, bounds for everything that a
// file could make large, and errors that say what to write instead.
//
// [Parse] makes a tree of [Node]s. It refuses what makes YAML surprising: a second document, keys that are not text or
// stand there twice, merge keys, tags, and aliases that blow a small file up. A [Decoder] and [Mapping] turn the tree
// into Go values and collect all faults instead of stopping at the first. [ParseAll] reads several documents. Of a document with
// syntax errors both keep the parts whose bounds are clear.
//
// The tree is shared, not copied, where a file uses an alias, so that reading costs no more memory than the file's own
// text is worth. It must not be changed.
package strictyaml
