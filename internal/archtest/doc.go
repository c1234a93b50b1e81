// Package archtest checks the structure of the repository. It contains only tests: for the layers, the house rules, the
// modules, the exported APIs of public packages, and the words of comments, docs and messages.
//
// A request passes through these layers, and imports point only downwards:
//
//	edge      httplimit, grpclimit       implements a protocol, depends on no store
//	limiter   the root package           store timeout, fail mode, events
//	store     memstore                   applies takes, owns the clock
//	step      internal/step              integers in, integers out
//
// The limiter imports no store: its callers pass one in. A store imports the types of the root package, and the root
// package never imports a store.
//
// Two tables in arch_test.go define this. mayImport lists, for every folder of the workspace, the folders of this
// repository that its code may import; a folder that is not listed fails the tests. neverReach lists the packages that
// a folder must not depend on even indirectly, of this repository and of the standard library. Test files may import
// anything.
//
// A new folder needs a line in mayImport. Use the shortest list that compiles: it is easier to extend it later than to
// shorten it.
package archtest
