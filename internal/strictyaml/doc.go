// Package strictyaml reads hand-written YAML: every value has a position, the size of a file is bounded, and errors say
// what to write instead.
//
// [Parse] returns a tree of [Node]s. It rejects the surprising parts of YAML: a second document, keys that are not text
// or occur twice, merge keys, tags, and aliases that expand a small file. A [Decoder] and [Fields] turn the tree into
// Go values and collect all errors instead of stopping at the first. [ParseAll] reads several documents. If a document
// has syntax errors, both keep the parts that are clearly unaffected.
//
// An alias shares the node of its anchor, so that memory is proportional to the size of the file. The tree must not be
// changed.
package strictyaml
