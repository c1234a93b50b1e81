package recommend

import "container/heap"

// flight measures the requests in flight of a key and their maximum: the permits that it needs.
type flight struct {
	ends ends
	most int64
}

func (f *flight) request(micros, _, duration int64) {
	for len(f.ends) > 0 && f.ends[0] <= micros {
		heap.Pop(&f.ends)
	}
	heap.Push(&f.ends, micros+duration)
	f.most = max(f.most, int64(len(f.ends)))
}

func (f *flight) need() int64  { return f.most }
func (f *flight) exact() int64 { return f.most }
func (f *flight) reset()       { f.ends, f.most = f.ends[:0], 0 }

// ends is a heap of times at which requests end.
type ends []int64

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i] < e[j] }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(int64)) }

func (e *ends) Pop() any {
	last := len(*e) - 1
	end := (*e)[last]
	*e = (*e)[:last]
	return end
}
