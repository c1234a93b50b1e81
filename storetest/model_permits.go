package storetest

import (
	"slices"

	"github.com/sluiceproject/sluice"
)

// slotMeter remembers what is in flight: for each slot when it was taken or last renewed, which is its name, and how
// many it stands for.
type slotMeter struct {
	slots  []logEntry // in order of time
	lease  int64      // under which it was written
	newest int64      // the last name given
}

// adopted has each slot end when the new lease says.
func (m *slotMeter) adopted(l *sluice.Limit, now int64) meter {
	lease := l.Window.Microseconds()
	if m.wornOff() <= now || m.lease == lease {
		return m
	}
	kept := &slotMeter{lease: lease}
	for _, s := range m.slots {
		if s.at > now-lease {
			kept.slots = append(kept.slots, s)
		}
	}
	if n := len(kept.slots); n > 0 {
		kept.newest = kept.slots[n-1].at
	}
	return kept
}

// live are those that a clock finds in flight.
func (m *slotMeter) live(l *sluice.Limit, t int64) (live []logEntry) {
	for _, s := range m.slots {
		if m.wornOff() > t && s.at > t-l.Window.Microseconds() {
			live = append(live, s)
		}
	}
	return live
}

func (m *slotMeter) used(l *sluice.Limit, t int64) (used int64) {
	for _, s := range m.live(l, t) {
		used += s.cost
	}
	return used
}

func (m *slotMeter) fits(l *sluice.Limit, t, cost int64) bool { return m.used(l, t)+cost <= l.Count }

func (m *slotMeter) remaining(l *sluice.Limit, t int64) int64 { return max(0, l.Count-m.used(l, t)) }

func (m *slotMeter) freshAt(l *sluice.Limit, t int64) int64 {
	if live := m.live(l, t); len(live) > 0 {
		return live[len(live)-1].at + l.Window.Microseconds()
	}
	return t
}

// wornOff is when even the newest name is forgotten.
func (m *slotMeter) wornOff() int64 {
	if m.newest == 0 {
		return 0
	}
	return m.newest + m.lease
}

// spend takes a slot of a name that none had before.
func (m *slotMeter) spend(l *sluice.Limit, now, cost, _ int64) int64 {
	m.slots = m.live(l, now)
	if m.wornOff() > now {
		m.newest = max(now, m.newest+1)
	} else {
		m.newest = now
	}
	m.lease = l.Window.Microseconds()
	m.slots = append(m.slots, logEntry{m.newest, cost})
	return m.newest
}

// charge does nothing: who was refused is not in flight.
func (m *slotMeter) charge(*sluice.Limit, int64, int64) {}

// adjust gives back as much of the slot of this name as it still has.
func (m *slotMeter) adjust(l *sluice.Limit, now, at, _, delta int64) int64 {
	live := m.live(l, now)
	i := slices.IndexFunc(live, func(s logEntry) bool { return s.at == at })
	if i < 0 {
		return 0
	}
	given := min(live[i].cost, -delta)
	if live[i].cost -= given; live[i].cost == 0 {
		live = slices.Delete(live, i, i+1)
	}
	m.slots = live
	return -given
}

// renew gives the slot of a name another name, or takes one anew if it is gone. It tells what that took, and whether
// there was no room.
func (m *slotMeter) renew(l *sluice.Limit, now, at, cost int64) (name, granted int64, ok bool) {
	live := m.live(l, now)
	i := slices.IndexFunc(live, func(s logEntry) bool { return s.at == at })
	if i >= 0 {
		cost = live[i].cost
		m.slots = slices.Delete(live, i, i+1)
		return m.spend(l, now, cost, now), 0, true
	}
	if !m.fits(l, now, cost) {
		return now, 0, false
	}
	return m.spend(l, now, cost, now), cost, true
}

func (m *slotMeter) leaves(gone func(int64) bool) bool {
	for _, s := range m.slots {
		if gone(s.at + m.lease) {
			return true
		}
	}
	return gone(m.wornOff())
}

// renew answers a take that renews a slot.
func (r *Reference) renew(m *slotMeter, t *sluice.Take, now int64) sluice.Decision {
	l := t.EffectiveLimit()
	d := sluice.Decision{ExceedsLimit: t.Cost > l.Count}
	d.Receipt, d.Granted, d.Allowed = m.renew(l, now, t.Receipt, t.Cost)
	switch {
	case d.Allowed:
		d.ExceedsLimit = false
	case !d.ExceedsLimit:
		d.RetryAfter = micros(retryAfter(m, l, now, t.Cost, 0))
	}
	return d
}
