package storetest

import (
	"math/big"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
)

// markBook contains the marks of a bucket: for each time with unsettled reservations, low is the lowest missing amount
// since then, and out the unsettled part of the reservations from then on until the next mark. Amounts are units, as
// exact fractions.
type markBook []bookMark

type bookMark struct {
	at       int64
	low, out *big.Rat
}

const (
	maxMarks = 32
	// markLife is the time after which a reservation is no longer refunded.
	markLife = int64(2 * time.Hour / time.Microsecond)
)

// lacking is a meter with an amount that can be missing.
type lacking interface {
	meter
	lacks(l *sluice.Limit, now int64) *big.Rat
	refund(l *sluice.Limit, now int64, back *big.Rat)
	held() int64 // the burst of the limit at the last write
}

func (m *bucketMeter) lacks(l *sluice.Limit, now int64) *big.Rat {
	return new(big.Rat).Sub(whole(l.Burst), m.tokens(l, now))
}

func (m *bucketMeter) refund(l *sluice.Limit, now int64, back *big.Rat) {
	if back.Sign() > 0 {
		m.full = new(big.Rat).Sub(m.full, new(big.Rat).Quo(back, rate(l)))
		m.settle(now)
	}
}

func (m *intervalMeter) lacks(l *sluice.Limit, now int64) *big.Rat {
	return whole(m.at(l, now).missing)
}

func (m *intervalMeter) refund(l *sluice.Limit, now int64, back *big.Rat) {
	if back.Sign() > 0 {
		*m = m.at(l, now)
		m.missing -= floor(back)
	}
}

// marking returns the meter if its reservations leave marks.
func marking(m meter, l *sluice.Limit) (lacking, bool) {
	k, ok := m.(lacking)
	return k, ok && l.Algorithm != sluice.LeakyQueue
}

func minOf(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// scaled scales the marks to a larger or smaller bucket.
func (b markBook) scaled(by *big.Rat) markBook {
	for i := range b {
		b[i].low, b[i].out = new(big.Rat).Mul(b[i].low, by), new(big.Rat).Mul(b[i].out, by)
	}
	return b
}

// see records the missing amount before it changes.
func (b markBook) see(now int64, missing *big.Rat) markBook {
	for i := range b {
		if b[i].at < now {
			b[i].low = minOf(b[i].low, missing)
		}
	}
	b = slices.DeleteFunc(b, func(k bookMark) bool { return k.at < now-markLife })
	return b.tidy()
}

// tidy drops marks that cannot refund anything, and those that are no better than the previous one.
func (b markBook) tidy() markBook {
	var kept markBook
	for _, k := range b {
		switch n := len(kept); {
		case k.low.Sign() <= 0 || k.out.Sign() <= 0:
		case n > 0 && kept[n-1].low.Cmp(k.low) >= 0:
			kept[n-1].out = new(big.Rat).Add(kept[n-1].out, k.out)
		default:
			kept = append(kept, k)
		}
	}
	return kept
}

// spent records an admitted cost, which may be delayed, after which this much was missing.
func (b markBook) spent(l *sluice.Limit, d *sluice.Decision, missing *big.Rat, settles bool) markBook {
	if d.Delay > 0 { // the missing amount just before its time
		for i := range b {
			b[i].low = minOf(b[i].low, whole(max(0, l.Burst-d.Granted)))
		}
		b = b.tidy()
	}
	if !settles {
		return b
	}
	low, out := minOf(missing, whole(l.Burst)), whole(d.Granted)
	switch i, n := b.last(d.Receipt), len(b); {
	case i >= 0 && i == n-1 && b[i].at == d.Receipt:
		b[i].low, b[i].out = low, out.Add(out, b[i].out)
	case i == n-1:
		b = append(b, bookMark{d.Receipt, low, out})
	case i >= 0:
		b[i].out = out.Add(out, b[i].out)
	}
	return b.fold()
}

// last returns the index of the last mark that is not after a time, or -1.
func (b markBook) last(at int64) int {
	i := len(b) - 1
	for i >= 0 && b[i].at > at {
		i--
	}
	return i
}

// fold merges one mark too many into the previous one, where the loss is smallest.
func (b markBook) fold() markBook {
	for len(b) > maxMarks {
		best, least := 0, new(big.Rat)
		for i := 1; i < len(b); i++ {
			cost := new(big.Rat).Sub(b[i].low, b[i-1].low)
			if cost.Mul(cost, b[i].out); best == 0 || cost.Cmp(least) < 0 {
				best, least = i, cost
			}
		}
		b[best-1].out = new(big.Rat).Add(b[best-1].out, b[best].out)
		b = slices.Delete(b, best, best+1)
	}
	return b
}

// settle settles a take that left a mark.
func (b markBook) settle(m lacking, l *sluice.Limit, t *sluice.Take, charged, now int64) (markBook, int64) {
	i, share := b.last(t.Receipt), whole(1)
	if t.ChargedOf != 0 { // relative to the burst at that time
		share = big.NewRat(l.Burst, t.ChargedOf)
	}
	if i >= 0 {
		b[i].out = new(big.Rat).Sub(b[i].out, new(big.Rat).Mul(whole(charged), share))
	}
	if t.Cost >= 0 {
		return b.tidy(), m.adjust(l, now, t.Receipt, charged, t.Cost)
	}
	if i < 0 {
		return b, 0
	}
	missing := m.lacks(l, now)
	low := minOf(missing, b[i].low)
	back := minOf(new(big.Rat).Mul(whole(-t.Cost), share), low)
	rest := new(big.Rat).Sub(low, back)
	for j := range b {
		if j <= i {
			b[j].low = minOf(b[j].low, rest)
		} else {
			b[j].low = new(big.Rat).Sub(b[j].low, back)
		}
	}
	m.refund(l, now, back)
	if back.Sign() <= 0 {
		return b.tidy(), 0
	}
	return b.tidy(), -freed(missing, back)
}

// see records the missing amount of a bucket before it changes.
func (r *Reference) see(m meter, t *sluice.Take, now int64) {
	if k, ok := marking(m, t.EffectiveLimit()); ok {
		r.marks[nameOf(t)] = r.marks[nameOf(t)].see(now, k.lacks(t.EffectiveLimit(), now))
	}
}

// mark records the take that was just admitted.
func (r *Reference) mark(m meter, t *sluice.Take, d *sluice.Decision, now int64) {
	if k, ok := marking(m, t.EffectiveLimit()); ok {
		r.marks[nameOf(t)] = r.marks[nameOf(t)].spent(t.EffectiveLimit(), d, k.lacks(t.EffectiveLimit(), now), t.Settles)
	}
}

// settle settles the take according to the limit's algorithm. It returns the charged or, if negative, the refunded
// cost.
func (r *Reference) settle(m meter, t *sluice.Take, now int64) int64 {
	l, name := t.EffectiveLimit(), nameOf(t)
	charged := t.Charged
	if charged == 0 {
		charged = max(t.Cost, -t.Cost)
	}
	cost := t.Cost
	if _, ok := m.(*permitMeter); ok && t.Settles { // releases all permits of the take, regardless of the cost
		cost = -charged
	}
	k, ok := marking(m, l)
	if !ok {
		return m.adjust(l, now, t.Receipt, charged, cost)
	}
	before := k.lacks(l, now)
	book, given := r.marks[name].see(now, before), int64(0)
	if t.Settles {
		book, given = book.settle(k, l, t, charged, now)
	} else if given = m.adjust(l, now, t.Receipt, charged, cost); given < 0 {
		back := before.Sub(before, k.lacks(l, now))
		for i := range book {
			book[i].low = new(big.Rat).Sub(book[i].low, back)
		}
		book = book.tidy()
	}
	r.marks[name] = book
	return given
}
