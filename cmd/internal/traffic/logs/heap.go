package logs

// take returns an entry to read into.
func (l *Log) take() *Entry {
	if n := len(l.spare); n > 0 {
		e := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return e
	}
	return new(Entry)
}

func (e *Entry) before(o *Entry) bool {
	return e.Micros < o.Micros || e.Micros == o.Micros && e.number < o.number
}

func (l *Log) push(e *Entry) {
	l.size += len(e.line)
	l.waiting = append(l.waiting, e)
	h := l.waiting
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// drop removes the request that peek returned.
func (l *Log) drop() {
	h := l.waiting
	last := len(h) - 1
	l.size -= len(h[0].line)
	l.spare = append(l.spare, h[0])
	h[0] = h[last]
	h = h[:last]
	l.waiting = h
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && h[down].before(h[least]) {
				least = down
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
