package storetest

import (
	"slices"

	"github.com/sluiceproject/sluice"
)

// permitMeter stores the permits in use: for each the time when it was acquired or last renewed, which is its receipt,
// and the number of units.
type permitMeter struct {
	permits []logEntry // in order of time
	ttl     int64      // of the limit at the last write
	newest  int64      // the last receipt
}

// adopted changes the expiry of each permit to the new TTL. While the newest permit has not expired, expired ones are
// kept, because a clock that is set back needs them.
func (m *permitMeter) adopted(l *sluice.Limit, now int64) meter {
	ttl := l.Window.Microseconds()
	if m.hasExpired() <= now || m.ttl == ttl {
		return m
	}
	n := len(m.permits)
	if n == 0 || m.permits[n-1].at <= now-ttl {
		return &permitMeter{ttl: ttl}
	}
	return &permitMeter{permits: m.permits, ttl: ttl, newest: m.permits[n-1].at}
}

// live returns the permits in use at the time t.
func (m *permitMeter) live(l *sluice.Limit, t int64) (live []logEntry) {
	for _, s := range m.permits {
		if m.hasExpired() > t && s.at > t-l.Window.Microseconds() {
			live = append(live, s)
		}
	}
	return live
}

func (m *permitMeter) used(l *sluice.Limit, t int64) (used int64) {
	for _, s := range m.live(l, t) {
		used += s.cost
	}
	return used
}

func (m *permitMeter) fits(l *sluice.Limit, t, cost int64) bool { return m.used(l, t)+cost <= l.Count }

func (m *permitMeter) remaining(l *sluice.Limit, t int64) int64 { return max(0, l.Count-m.used(l, t)) }

func (m *permitMeter) expiresAt(l *sluice.Limit, t int64) int64 {
	if live := m.live(l, t); len(live) > 0 {
		return live[len(live)-1].at + l.Window.Microseconds()
	}
	return t
}

// hasExpired returns when the newest receipt has expired.
func (m *permitMeter) hasExpired() int64 {
	if m.newest == 0 {
		return 0
	}
	return m.newest + m.ttl
}

// spend acquires a permit with a new receipt.
func (m *permitMeter) spend(l *sluice.Limit, now, cost, _ int64) int64 {
	m.permits = m.live(l, now)
	if m.hasExpired() > now {
		m.newest = max(now, m.newest+1)
	} else {
		m.newest = now
	}
	m.ttl = l.Window.Microseconds()
	m.permits = append(m.permits, logEntry{m.newest, cost})
	return m.newest
}

// charge does nothing: denied requests hold no permit.
func (m *permitMeter) charge(*sluice.Limit, int64, int64) {}

// adjust releases as many units of the permit with this receipt as it still has.
func (m *permitMeter) adjust(l *sluice.Limit, now, at, _, delta int64) int64 {
	live := m.live(l, now)
	i := slices.IndexFunc(live, func(s logEntry) bool { return s.at == at })
	if i < 0 {
		return 0
	}
	given := min(live[i].cost, -delta)
	if live[i].cost -= given; live[i].cost == 0 {
		live = slices.Delete(live, i, i+1)
	}
	m.permits = live
	return -given
}

// renew gives the permit with a receipt a new receipt, or acquires one again if it has expired. It returns the granted
// cost, and false if the limit denies it.
func (m *permitMeter) renew(l *sluice.Limit, now, at, cost int64) (name, granted int64, ok bool) {
	live := m.live(l, now)
	i := slices.IndexFunc(live, func(s logEntry) bool { return s.at == at })
	if i >= 0 {
		cost = live[i].cost
		m.permits = slices.Delete(live, i, i+1)
		return m.spend(l, now, cost, now), 0, true
	}
	if !m.fits(l, now, cost) {
		return now, 0, false
	}
	return m.spend(l, now, cost, now), cost, true
}

func (m *permitMeter) leaves(gone func(int64) bool) bool {
	for _, s := range m.permits {
		if gone(s.at + m.ttl) {
			return true
		}
	}
	return gone(m.hasExpired())
}

// renew decides a take that renews a permit.
func (r *Reference) renew(m *permitMeter, t *sluice.Take, now int64) sluice.Decision {
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
