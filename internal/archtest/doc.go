// Package archtest holds the shape of the repository. It has tests and no
// code: one file for the layers, one for the house rules, one for the modules,
// one for what public packages export.
//
// A request walks down one line, and imports point down it only:
//
//	edge      httplimit, grpclimit       speaks a protocol, knows no store
//	limiter   the root package           time budget, fail mode, events
//	store     memstore                   applies takes, owns the clock
//	step      internal/step              integers in, integers out
//
// The limiter names no store: its callers hand it one. So a store imports the
// limiter's words from the root, and the root never imports a store.
//
// Two tables in arch_test.go say so to the machine. mayImport lists, for every
// folder of the workspace, the folders of ours that its code may import;
// a folder that is not listed fails the tests. neverReach lists what a folder
// must not pull in even through others, from our own packages to the standard
// library's. Test files are free to import what they like.
//
// A new folder needs a line in mayImport. Write the shortest list that
// compiles: it is easier to widen later than to narrow.
package archtest
