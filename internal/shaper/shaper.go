// Package shaper lets callers wait in line: first in, first out, one line for each name.
//
// A line decides who is next, and how long it may get. Whether the first may leave is somebody else's to say, such as a
// store that others share: the first asks, and asks again when it was told to come later. Nothing is asked for those
// behind it, so that who leaves the line before its turn leaves no trace, and those behind move up.
//
//	enter → wait until first, and its time has come → ask → depart, or postponed → wait …
//	  ↓                    ↓                                          ↓
//	no room           left, or late                                  late
//
// Departures are stamped by this process's clock, which does not go back, and the next may not leave before the
// stamp's interval is over. To wait for a moment that was fixed when the caller came would not do that: clocks wake
// sleepers late, some more and some less, and what is late on one side is missing on the other.
//
// Nobody but the callers does anything: there is no goroutine. A line in which nobody waits is forgotten, after its last
// departure's interval, when others are made.
package shaper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Shape is how the members of a line leave it.
type Shape struct {
	// Interval is how long a member of cost 1 takes.
	Interval time.Duration
	// Room is how much time the members of the line may take together, with what is left of the last one's that
	// departed. 0 means that only patience bounds it.
	Room time.Duration
	// Spaced keeps departures apart by the time that they take.
	Spaced bool
}

// Name names a line: that of a rule for a key.
type Name struct{ Rule, Key string }

// Lines are lines by name. The zero Lines has none.
type Lines struct {
	mu             sync.Mutex // guards all below, and all that is in lines
	lines          map[Name]*line
	oldest, newest *Place // of all lines, linked by earlier and later
}

// used are the Lines of this process in which a request has waited.
var used struct {
	mu  sync.Mutex // guards all
	all []weak.Pointer[Lines]
}

// Oldest returns how long the oldest place of all lines of this process has been taken, or 0 if there is none.
func Oldest() time.Duration {
	used.mu.Lock()
	used.all = slices.DeleteFunc(used.all, func(p weak.Pointer[Lines]) bool { return p.Value() == nil })
	all := slices.Clone(used.all)
	used.mu.Unlock() // because Lines that are new lock the other way round
	var age time.Duration
	for _, p := range all {
		if l := p.Value(); l != nil {
			age = max(age, l.age())
		}
	}
	return age
}

func (l *Lines) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.oldest == nil {
		return 0
	}
	return time.Since(l.oldest.Came)
}

type line struct {
	first, last *Place
	ahead       time.Duration // how long all who wait take
	spaced      time.Time     // when the last departure's time is over
	told        time.Time     // when those who wait may ask again; forgotten when nobody waits
}

// free is when the first may leave.
func (l *line) free() time.Time {
	if l.told.After(l.spaced) {
		return l.told
	}
	return l.spaced
}

// Place is a caller's place in a line. It is for one goroutine, and may be used again when it is gone.
type Place struct {
	Came       time.Time     // in the order of the line
	RetryAfter time.Duration // set with ErrLate: when it may be worth to come again
	Free       bool          // to be set if the next may follow at once although the line is spaced

	of        *Lines
	line      *line
	shape     Shape
	takes     time.Duration // how long it takes
	patience  time.Duration // how long the caller would wait
	until     time.Time     // how long it waits at most
	before    *Place
	after     *Place
	earlier   *Place // in all lines
	later     *Place
	ready     chan struct{} // closed when it is first
	isFirst   bool          // as far as the caller knows
	postponed bool
}

// ErrLate is returned when a place would come too late for its caller.
var ErrLate = errors.New("shaper: the turn would come too late")

// Enter takes the last place of a line. If there is no room, or its turn would come later than the caller's patience,
// it returns false, and the caller may try again after a time.
func (l *Lines) Enter(p *Place, name Name, shape Shape, cost int64, patience time.Duration) (time.Duration, bool) {
	takes := time.Duration(cost) * shape.Interval
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	line := l.lines[name]
	if line == nil {
		line = l.add(name, now)
	} else if late := line.late(now, &shape, takes, patience); late > 0 {
		return late, false
	}
	patience = min(patience, longest)
	*p = Place{Came: now, of: l, line: line, shape: shape, takes: takes, patience: patience, before: line.last, earlier: l.newest}
	if p.earlier == nil {
		l.oldest = p
	} else {
		p.earlier.later = p
	}
	l.newest = p
	p.until = now.Add(2*patience + shape.Interval) // a machine that is busy wakes everybody late, which is no reason to refuse them
	line.ahead += takes
	line.last = p
	if p.before == nil {
		line.first, p.isFirst = p, true
	} else {
		p.before.after = p
		p.ready = make(chan struct{})
	}
	return 0, true
}

// late is how much too long the line is for somebody at its end.
func (l *line) late(now time.Time, shape *Shape, takes, patience time.Duration) time.Duration {
	full := max(0, l.free().Sub(now)) + l.ahead
	wait := full
	if l.first != nil && !shape.Spaced { // the first has what it takes once it may leave; this one not yet
		wait += takes - l.first.takes
	}
	if shape.Room > 0 {
		return max(wait-patience, full+takes-shape.Room)
	}
	return wait - patience
}

// longest bounds how long anybody waits, so that times can be added.
const longest = 366 * 24 * time.Hour

// Now tells whether the place is first and may leave now.
func (p *Place) Now() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.line.first == p && !p.line.free().After(time.Now())
}

// Wait returns when the place is first and may leave, as far as is known here. It returns the context's error if that
// ends before, and ErrLate if the caller has waited for twice its patience. Then the place is gone.
func (p *Place) Wait(ctx context.Context) error {
	late := time.NewTimer(time.Until(p.until))
	defer late.Stop()
	if !p.isFirst {
		select {
		case <-p.ready:
			p.isFirst = true
		case <-ctx.Done():
			p.Leave()
			return ctx.Err()
		case <-late.C:
			return p.tooLate()
		}
	}
	for {
		p.of.mu.Lock()
		wait := time.Until(p.line.free())
		p.of.mu.Unlock()
		if err := ctx.Err(); err != nil {
			p.Leave()
			return err
		}
		if wait <= 0 {
			return nil
		}
		turn := time.NewTimer(wait)
		select {
		case <-turn.C:
		case <-ctx.Done(): // seen above
		case <-late.C:
			turn.Stop()
			return p.tooLate()
		}
		turn.Stop()
	}
}

// Postpone notes that the first may not leave for so long. It returns ErrLate if that is too long for the caller; then
// the place is gone.
func (p *Place) Postpone(d time.Duration) error {
	now := time.Now()
	told := now.Add(min(d, longest))
	p.of.mu.Lock()
	p.line.told = told
	p.of.mu.Unlock()
	until := p.until
	if p.ready == nil && !p.postponed { // nothing has been waited for yet that would be lost
		until = now.Add(p.patience)
	}
	p.postponed = true
	if told.After(until) {
		return p.tooLate()
	}
	return nil
}

// tooLate leaves, and says when it may be worth to come again: when the line is so much shorter.
func (p *Place) tooLate() error {
	p.of.mu.Lock()
	wait := max(0, time.Until(p.line.free()))
	if p.line.first != p {
		wait += p.line.ahead - p.takes
	}
	p.RetryAfter = max(p.shape.Interval, wait-p.patience)
	p.of.mu.Unlock()
	p.Leave()
	return ErrLate
}

// Behind is how long those take who wait behind the first.
func (p *Place) Behind() time.Duration {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.line.ahead - p.takes
}

// Depart leaves the line from its first place, and stamps when.
func (p *Place) Depart() time.Time {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	left := time.Now()
	if p.shape.Spaced && !p.Free {
		p.line.spaced = left.Add(p.takes)
	}
	p.leaveLocked()
	return left
}

// Leave gives the place up. Those behind it move up. Leaving twice does nothing.
func (p *Place) Leave() {
	if p.of == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.leaveLocked()
}

func (p *Place) leaveLocked() {
	l := p.line
	if l == nil {
		return
	}
	p.line = nil
	l.ahead -= p.takes
	if p.before == nil {
		l.first = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		l.last = p.before
	} else {
		p.after.before = p.before
	}
	if p.earlier == nil {
		p.of.oldest = p.later
	} else {
		p.earlier.later = p.later
	}
	if p.later == nil {
		p.of.newest = p.earlier
	} else {
		p.later.earlier = p.earlier
	}
	if p.before == nil && l.first != nil {
		close(l.first.ready)
	}
	if l.first == nil {
		l.told = time.Time{}
	}
}

// maxIdle bounds how many lines are kept in which nobody waits. What they remember is worth little: that the last
// departure is not yet an interval ago, which whoever is asked knows as well, but for how long answers take.
const maxIdle = 1 << 16

func (l *Lines) add(name Name, now time.Time) *line {
	l.prune(now)
	if l.lines == nil {
		l.lines = make(map[Name]*line)
		used.mu.Lock()
		used.all = append(used.all, weak.Make(l))
		used.mu.Unlock()
	}
	name.Key = strings.Clone(name.Key)
	made := &line{}
	l.lines[name] = made
	return made
}

// prune looks at a few lines and forgets those in which nobody waits and whose interval is over. As it is done for every
// line that is made, those that are forgotten late are never many.
func (l *Lines) prune(now time.Time) {
	const few = 4
	looked := 0
	for name, line := range l.lines {
		if line.first == nil && (!line.spaced.After(now) || len(l.lines) > maxIdle) {
			delete(l.lines, name)
			if line.spaced.After(now) {
				bounds.DelayLines.Reached()
			}
		}
		if looked++; looked == few {
			return
		}
	}
}

// Len is how many lines there are.
func (l *Lines) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}
