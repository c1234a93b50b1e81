package storetest

import (
	"math/big"
	"slices"

	"github.com/sluiceproject/sluice"
)

// The weight of a partly expired window is a multiple of 1/65,536, rounded up: in favour of the limit.
const weightParts = 1 << 16

// maxCounted is the maximum count of a sliding counter.
const maxCounted = 1<<32 - 1

// weighted returns the weight of count if only left of length has not expired.
func weighted(l *sluice.Limit, count, left, length int64) int64 {
	parts := ceilDiv(min(left, length)*weightParts, length) * count
	if l.Rounding == sluice.RoundNearest {
		parts += weightParts / 2
	}
	return parts / weightParts
}

// counterMeter estimates the sliding window as the count of the current window plus the unexpired share of the previous
// one.
type counterMeter struct {
	start     int64 // of the current window
	length    int64 // of the limit at the last write; 0: none
	cur, prev int64
}

// inside returns the part of count that has not expired with left of length, rounded up.
func inside(count, left, length int64) int64 {
	return ceil(new(big.Rat).Mul(whole(count), big.NewRat(min(left, length), length)))
}

// adopted keeps the estimate, rounded up, as if all of it had been used now.
func (m *counterMeter) adopted(l *sluice.Limit, now int64) meter {
	length := l.Window.Microseconds()
	if m.hasExpired() <= now || m.length == length {
		return m
	}
	c := *m
	if now >= c.start+c.length {
		c = counterMeter{start: c.start + c.length, length: c.length, prev: c.cur}
	}
	used := c.cur + inside(c.prev, c.start+c.length-now, c.length)
	return &counterMeter{start: floorDiv(now, length) * length, length: length, cur: min(used, maxCounted)}
}

// tidy returns to the previous window if the count of the current one is 0.
func (m *counterMeter) tidy() {
	if m.cur == 0 {
		m.start, m.cur, m.prev = m.start-m.length, m.prev, 0
	}
}

func (m *counterMeter) at(l *sluice.Limit, t int64) counterMeter {
	length := l.Window.Microseconds()
	switch {
	case m.hasExpired() <= t:
		return counterMeter{start: floorDiv(t, length) * length, length: length}
	case t < m.start+length:
		return *m
	}
	return counterMeter{start: m.start + length, length: length, prev: m.cur}
}

func (m *counterMeter) used(l *sluice.Limit, t int64) int64 {
	c := m.at(l, t)
	if c.prev == 0 {
		return c.cur
	}
	return c.cur + weighted(l, c.prev, c.start+c.length-t, c.length)
}

func (m *counterMeter) fits(l *sluice.Limit, t, cost int64) bool { return m.used(l, t)+cost <= l.Count }

func (m *counterMeter) remaining(l *sluice.Limit, t int64) int64 { return max(0, l.Count-m.used(l, t)) }

func (m *counterMeter) expiresAt(_ *sluice.Limit, t int64) int64 { return max(t, m.hasExpired()) }

func (m *counterMeter) hasExpired() int64 {
	if m.cur == 0 && m.prev == 0 {
		return 0
	}
	return m.start + 2*m.length
}

func (m *counterMeter) spend(l *sluice.Limit, now, cost, at int64) int64 {
	*m = m.at(l, now)
	m.cur = min(m.cur+cost, maxCounted)
	return at
}

func (m *counterMeter) charge(l *sluice.Limit, now, cost int64) { m.spend(l, now, cost, now) }

func (m *counterMeter) adjust(l *sluice.Limit, now, at, _, delta int64) int64 {
	c := m.at(l, now)
	count := &c.cur
	if delta < 0 {
		switch floorDiv(at-c.start, c.length) {
		case 0:
		case -1:
			count = &c.prev
		default:
			return 0
		}
	}
	before := *count
	*count = min(max(0, before+delta), maxCounted)
	given := *count - before
	*m = c
	m.tidy()
	return given
}

func (m *counterMeter) leaves(gone func(int64) bool) bool { return gone(m.hasExpired()) }

// subWindowMeter does the same with sub-windows: complete ones count in full, the oldest by its unexpired share.
type subWindowMeter struct {
	counts map[int64]int64 // by number of the sub-window
	last   int64           // number of the last written one
	length int64           // length and number of sub-windows of the limit at the last write
	number int64
}

func subLength(l *sluice.Limit) int64 { return l.Window.Microseconds() / int64(l.SubWindows) }

// adopted keeps the estimate, rounded up, as if all of it had been used now.
func (m *subWindowMeter) adopted(l *sluice.Limit, now int64) meter {
	if m.hasExpired() <= now || m.length == subLength(l) {
		return m
	}
	var total int64
	last := max(m.last, floorDiv(now, m.length))
	for number, n := range m.counts {
		switch age := last - number; {
		case age < m.number:
			total += n
		case age == m.number:
			total += inside(n, (last+1)*m.length-now, m.length)
		}
	}
	cur := floorDiv(now, subLength(l))
	return &subWindowMeter{map[int64]int64{cur: total}, cur, subLength(l), int64(l.SubWindows)}
}

// current returns the number of the current sub-window, at the earliest the last written one.
func (m *subWindowMeter) current(l *sluice.Limit, t int64) int64 {
	number := floorDiv(t, subLength(l))
	if m.hasExpired() > t {
		number = max(number, m.last)
	}
	return number
}

func (m *subWindowMeter) used(l *sluice.Limit, t int64) int64 {
	if m.hasExpired() <= t {
		return 0
	}
	var used int64
	cur := m.current(l, t)
	for number, n := range m.counts {
		switch age := cur - number; {
		case age < m.number:
			used += n
		case age == m.number:
			used += weighted(l, n, (cur+1)*m.length-t, m.length)
		}
	}
	return used
}

func (m *subWindowMeter) fits(l *sluice.Limit, t, cost int64) bool {
	return m.used(l, t)+cost <= l.Count
}

func (m *subWindowMeter) remaining(l *sluice.Limit, t int64) int64 {
	return max(0, l.Count-m.used(l, t))
}

func (m *subWindowMeter) expiresAt(_ *sluice.Limit, t int64) int64 { return max(t, m.hasExpired()) }

func (m *subWindowMeter) hasExpired() int64 { return (m.last + m.number + 1) * m.length }

// write advances the meter to now.
func (m *subWindowMeter) write(l *sluice.Limit, now int64) {
	cur := m.current(l, now)
	if m.hasExpired() <= now {
		clear(m.counts)
	}
	for number := range m.counts {
		if cur-number > int64(l.SubWindows) {
			delete(m.counts, number)
		}
	}
	m.last, m.length, m.number = cur, subLength(l), int64(l.SubWindows)
}

func (m *subWindowMeter) spend(l *sluice.Limit, now, cost, at int64) int64 {
	m.write(l, now)
	m.counts[m.last] = min(m.counts[m.last]+cost, maxCounted)
	return at
}

func (m *subWindowMeter) charge(l *sluice.Limit, now, cost int64) { m.spend(l, now, cost, now) }

func (m *subWindowMeter) adjust(l *sluice.Limit, now, at, _, delta int64) int64 {
	if delta > 0 {
		m.write(l, now)
		before := m.counts[m.last]
		m.counts[m.last] = min(before+delta, maxCounted)
		return m.counts[m.last] - before
	}
	number := floorDiv(at, subLength(l))
	age := m.current(l, now) - number
	if age < 0 || age > int64(l.SubWindows) || m.hasExpired() <= now || m.counts[number] == 0 {
		return 0
	}
	m.write(l, now)
	back := min(m.counts[number], -delta)
	m.counts[number] -= back
	for n := int64(0); m.counts[m.last] == 0; n++ { // the newest non-zero count determines when all has expired
		if n > m.number {
			*m = subWindowMeter{counts: map[int64]int64{}}
			break
		}
		m.last--
	}
	return -back
}

func (m *subWindowMeter) leaves(gone func(int64) bool) bool {
	for number := range m.counts {
		if gone((number + m.number + 1) * m.length) {
			return true
		}
	}
	return gone(m.hasExpired())
}

// logMeter stores every request.
type logMeter struct {
	entries []logEntry // in order of time
	length  int64      // of the window of the limit at the last write
	end     int64      // when the last of them expires
}

type logEntry struct{ at, cost int64 }

// adopted changes the expiry of each entry to the new window. While the last entry has not expired, expired ones are
// kept, because a clock that is set back needs them.
func (m *logMeter) adopted(l *sluice.Limit, now int64) meter {
	length := l.Window.Microseconds()
	if m.end <= now || m.length == length {
		return m
	}
	n := len(m.entries)
	if n == 0 || m.entries[n-1].at <= now-length {
		return &logMeter{length: length}
	}
	return &logMeter{entries: m.entries, length: length, end: m.entries[n-1].at + length}
}

// finish computes when the last entry expires.
func (m *logMeter) finish() {
	m.end = 0
	if n := len(m.entries); n > 0 {
		m.end = m.entries[n-1].at + m.length
	}
}

func (m *logMeter) used(l *sluice.Limit, t int64) int64 {
	if m.end <= t {
		return 0
	}
	var used int64
	for _, e := range m.entries {
		if e.at > t-l.Window.Microseconds() {
			used += e.cost
		}
	}
	return used
}

func (m *logMeter) fits(l *sluice.Limit, t, cost int64) bool { return m.used(l, t)+cost <= l.Count }

func (m *logMeter) remaining(l *sluice.Limit, t int64) int64 { return max(0, l.Count-m.used(l, t)) }

func (m *logMeter) expiresAt(_ *sluice.Limit, t int64) int64 { return max(t, m.end) }

func (m *logMeter) hasExpired() int64 { return m.end }

// write removes expired entries.
func (m *logMeter) write(l *sluice.Limit, now int64) {
	if m.end <= now {
		m.entries = nil
	}
	for len(m.entries) > 0 && m.entries[0].at <= now-l.Window.Microseconds() {
		m.entries = m.entries[1:]
	}
}

// spend records the request, after those with a later time. Requests of one microsecond are one entry.
func (m *logMeter) spend(l *sluice.Limit, now, cost, _ int64) int64 {
	m.write(l, now)
	at := now
	if n := len(m.entries); n > 0 {
		at = max(at, m.entries[n-1].at)
	}
	if n := len(m.entries); n > 0 && m.entries[n-1].at == at {
		m.entries[n-1].cost += cost
	} else {
		m.entries = append(m.entries, logEntry{at, cost})
	}
	m.length = l.Window.Microseconds()
	m.finish()
	return at
}

func (m *logMeter) charge(l *sluice.Limit, now, cost int64) { m.spend(l, now, cost, now) }

// adjust refunds from the take's entry, if it still exists.
func (m *logMeter) adjust(l *sluice.Limit, now, at, _, delta int64) int64 {
	if delta > 0 {
		m.spend(l, now, delta, 0)
		return delta
	}
	left := m.end <= now || at <= now-l.Window.Microseconds()
	i := slices.IndexFunc(m.entries, func(e logEntry) bool { return e.at == at && !left })
	if i < 0 {
		return 0
	}
	e := &m.entries[i]
	before := e.cost
	e.cost = max(0, e.cost+delta)
	given := e.cost - before
	if e.cost == 0 {
		m.entries = slices.Delete(m.entries, i, i+1)
	}
	m.finish()
	return given
}

func (m *logMeter) leaves(gone func(int64) bool) bool {
	for _, e := range m.entries {
		if gone(e.at + m.length) {
			return true
		}
	}
	return gone(m.end)
}
