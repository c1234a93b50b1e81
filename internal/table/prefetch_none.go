//go:build !(amd64 || arm64) || race

package table

// Prefetch does nothing here: the processor has no such instruction that we know of, or the race detector would
// rightly object to looking at a segment without its lock.
func (t *Table) Prefetch(Hash) {}
