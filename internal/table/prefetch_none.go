//go:build !(amd64 || arm64) || race

package table

// prefetch does nothing here: we know of no such instruction, or the race detector would rightly object to looking at
// a segment without its lock.
func (t *Table) prefetch(segment, tag uint64) {}
