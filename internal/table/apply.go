package table

import (
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// Take applies one request: the fast path for the common case. h is the hash of the rule and key.
func (t *Table) Take(h Hash, p *step.Params, now int64, r step.Request) step.Answer {
	now = inRange(now)
	seg := &t.segments[h.segment()]
	tag, extra := h.tagFor(p.Identity()), h.extra()
	seg.mu.Lock()
	if seg.rare == nil && p.Kind < step.Slices && !r.Settles {
		if s := seg.lookup(tag, extra); s != nil && s.word&wideFlag == 0 {
			next, a := p.Take(t.stateOf(s, p, now, r.Known), nil, now, r)
			s.set(next)
			seg.mu.Unlock()
			return a
		}
	}
	a := t.takeLocked(seg, h, p, now, r)
	seg.mu.Unlock()
	return a
}

// inRange clamps a time to the range of a slot. A clock beyond it is broken, but must not corrupt the table.
func inRange(now int64) int64 {
	return min(max(now, 1), step.MaxTime-3*step.Horizon/2)
}

// takeLocked applies one request in all cases.
func (t *Table) takeLocked(seg *segment, h Hash, p *step.Params, now int64, r step.Request) step.Answer {
	if seg.rare != nil {
		if until := seg.blockedUntil(h, now); until > 0 {
			return t.takeBlocked(seg, h, p, now, r, until)
		}
	}
	return t.takeFree(seg, h, p, now, r)
}

// takeBlocked denies a request until the block ends, or for longer if it would be denied then, too.
func (t *Table) takeBlocked(seg *segment, h Hash, p *step.Params, now int64, r step.Request, until int64) step.Answer {
	if !r.DryRun {
		t.adopt(seg, h, p, now, r.Known, p.HasInitial && r.Cost > 0)
	}
	r.DryRun = true
	free := t.takeFree(seg, h, p, now, r)
	idle := t.takeFree(seg, h, p, now, step.Request{DryRun: true, Known: r.Known})
	return group.Blocked(&free, &idle, now, until)
}

// takeFree applies one request to a key that is not blocked.
func (t *Table) takeFree(seg *segment, h Hash, p *step.Params, now int64, r step.Request) step.Answer {
	tag := h.tagFor(p.Identity())
	if i, ok := seg.find(tag, h.extra()); ok {
		return t.takeSlot(seg.slots.at(i), p, now, r)
	}
	if t.sketch.mayCount(h, p, now) {
		return t.sketch.take(h, p, now, r)
	}
	// For a key that is not in the table, decide in scratch memory first, which has room for the first words of a wide
	// state.
	var scratch [step.MaxSlices + 1]uint64
	words := scratch[:p.Words(step.State{}, nil, now, r.Settles)]
	next, a := p.Take(step.State{}, words, now, r)
	if next.ExpiresAt <= now || r.DryRun {
		return a
	}
	if !t.insertState(seg, h, p, next, words, now) {
		bounds.StoreMemory.Reached()
		return t.sketch.take(h, p, now, r)
	}
	return a
}

// insertState inserts the first state of a key with its words. It reports whether there was room.
func (t *Table) insertState(seg *segment, h Hash, p *step.Params, first step.State, words []uint64, now int64) bool {
	fresh := slot{tag: h.tagFor(p.Identity()), word: h.extra()}
	if p.Wide(words) {
		switch block := t.arena.alloc(t, len(words)); {
		case block != 0:
			p.GrowWords(words, t.arena.words(block))
			fresh.word |= wideFlag
			first.Value = uint64(block)
		case p.Kind >= step.Slices: // a bucket can do without a mark
			return false
		}
	}
	fresh.set(first)
	if !t.insert(seg, fresh, now) {
		t.arena.release(&fresh)
		return false
	}
	return true
}

// stateOf reads a slot. It may be of the previous version if a snapshot of that version was loaded.
func (t *Table) stateOf(s *slot, p *step.Params, now int64, known *step.Known) step.State {
	st := s.state()
	if now < t.before {
		st = known.Before(p, st)
	}
	return st
}

// takeSlot applies one request to a key in the table.
func (t *Table) takeSlot(s *slot, p *step.Params, now int64, r step.Request) step.Answer {
	block := t.wideBlock(s, p, now, r.Settles && !r.DryRun)
	next, a := p.Take(t.stateOf(s, p, now, r.Known), t.arena.words(block), now, r)
	t.put(s, p, next, block) // also for a dry run, which may prune a log's words: the state must match them
	return a
}

// wideBlock returns the block with the words of a slot, or a larger one if the next take may need it and there is room.
// It returns 0 for a narrow slot, unless the take will leave a mark.
func (t *Table) wideBlock(s *slot, p *step.Params, now int64, settles bool) ref {
	var block ref
	if s.word&wideFlag != 0 {
		block = ref(s.value)
	} else if !settles {
		return 0
	}
	words := t.arena.words(block)
	need := p.Words(s.state(), words, now, settles)
	if need <= len(words) {
		return block
	}
	larger := t.arena.alloc(t, need)
	if larger == 0 {
		return block // the log merges entries, which counts them for longer; a bucket merges or omits marks
	}
	if block != 0 {
		p.GrowWords(words, t.arena.words(larger))
		t.arena.release(s)
		s.value = uint64(larger)
	}
	return larger
}

// put writes a slot's next state, whose words are in block. A bucket's block is freed with its last mark.
func (t *Table) put(s *slot, p *step.Params, next step.State, block ref) {
	if block != 0 {
		s.word |= wideFlag
		s.value = uint64(block)
		if p.Wide(t.arena.words(block)) {
			next.Value = s.value
		} else {
			t.arena.release(s)
			s.word &^= wideFlag
		}
	}
	s.set(next)
}

// adjustLocked settles or refunds an earlier take.
func (t *Table) adjustLocked(seg *segment, h Hash, p *step.Params, now int64, op *group.Op) step.Answer {
	tag := h.tagFor(p.Identity())
	delta := op.Request.Cost
	if i, ok := seg.find(tag, h.extra()); ok {
		s := seg.slots.at(i)
		block := t.wideBlock(s, p, now, false)
		next, a := p.Adjust(t.stateOf(s, p, now, op.Request.Known), t.arena.words(block), now, op.Settlement())
		t.put(s, p, next, block)
		return a
	}
	if t.sketch.mayCount(h, p, now) {
		// The sketch can charge but cannot refund, because other keys may share the cells.
		r := step.Request{Cost: delta, Charge: true}
		if delta <= 0 || p.Kind == step.Permits && op.Request.Settles {
			r = step.Request{}
		}
		a := t.sketch.take(h, p, now, r)
		a.Allowed, a.Never, a.At = true, false, op.At
		return a
	}
	var scratch [step.MaxSlices + 1]uint64
	words := scratch[:p.Words(step.State{}, nil, now, false)]
	next, a := p.Adjust(step.State{}, words, now, op.Settlement())
	if next.ExpiresAt > now && !t.insertState(seg, h, p, next, words, now) {
		bounds.StoreMemory.Reached()
		t.sketch.take(h, p, now, step.Request{Cost: delta, Charge: true})
	}
	return a
}

// Reset deletes a key's state of this kind and lifts its block.
func (t *Table) Reset(h Hash, p *step.Params, now int64) {
	now = inRange(now)
	seg := &t.segments[h.segment()]
	seg.mu.Lock()
	if i, ok := seg.find(h.tagFor(p.Identity()), h.extra()); ok {
		seg.slots.at(i).free()
	}
	blocks := seg.rare != nil
	seg.mu.Unlock()
	if blocks {
		t.Block(h, now, now)
	}
}

const deniedFlag = 1 << 63

// replay returns the decision about a request whose ID was charged before, with the current remaining quota.
func (t *Table) replay(seg *segment, h Hash, op *group.Op, now int64) (step.Answer, bool) {
	id := h.withID(op.ID)
	i, ok := seg.find(id.tagFor(0), id.extra())
	if !ok || seg.slots.at(i).expiresAt() <= now {
		return step.Answer{}, false
	}
	until, value := seg.slots.at(i).expiresAt(), seg.slots.at(i).value
	charged := group.Charged{
		At: until - group.IdempotencyTTL, Until: until,
		Granted: int64(value&^deniedFlag) << 1 >> 1, Denied: value&deniedFlag != 0,
	}
	found := t.takeLocked(seg, h, op.Params, now, op.Look())
	var again step.Answer
	if charged.Denied {
		again = t.takeLocked(seg, h, op.Params, now, op.Again())
	}
	return charged.Replay(op, found, again, now), true
}

// remember stores the ID of a charged request. If there is no room, a repetition is charged again: too much, never too
// little.
func (t *Table) remember(seg *segment, h Hash, op *group.Op, a *step.Answer, now int64) {
	id := h.withID(op.ID)
	s := slot{tag: id.tagFor(0), word: id.extra()}
	value := uint64(a.Granted) &^ deniedFlag
	if !a.Allowed {
		value |= deniedFlag
	}
	s.set(step.State{ExpiresAt: inRange(max(a.At, now)) + group.IdempotencyTTL, Value: value})
	if i, ok := seg.find(s.tag, id.extra()); ok {
		*seg.slots.at(i) = s
		return
	}
	t.insert(seg, s, now)
}

// onStack is the maximum number of takes of one call that are handled without an allocation.
const onStack = 16

// Apply decides several requests atomically. If one that is not shadow is denied, only requests with Charge are
// charged; otherwise all allowed ones are.
func (t *Table) Apply(now int64, ops []group.Op, out []step.Answer) {
	now = inRange(now)
	if len(ops) == 1 { // a single op needs less
		var hash [1]Hash
		var task [1]group.Task
		hash[0] = t.Locate(ops[0].Rule, ops[0].Key, ops[0].Params)
		t.applyHashed(now, ops, hash[:], &group.Call{Tasks: task[:], Out: out})
		return
	}
	var hashesOnStack [onStack]Hash
	var tasksOnStack [onStack]group.Task
	hashes, tasks := hashesOnStack[:], tasksOnStack[:]
	if len(ops) > onStack {
		hashes, tasks = make([]Hash, len(ops)), make([]group.Task, len(ops))
	}
	hashes = hashes[:len(ops)]
	call := group.Call{Tasks: tasks[:len(ops)], Out: out}
	for i := range ops {
		h := t.Locate(ops[i].Rule, ops[i].Key, ops[i].Params)
		hashes[i] = h
		call.Tasks[i].Cell = group.Cell{A: h.tagFor(ops[i].Params.Identity()), B: h.spot}
	}
	t.applyHashed(now, ops, hashes, &call)
}

func (t *Table) applyHashed(now int64, ops []group.Op, hashes []Hash, call *group.Call) {
	var onStackOrder [onStack]uint16
	order := t.lockAll(hashes, onStackOrder[:0])
	veto := false
	for i := range ops {
		t.decide(call, i, &ops[i], hashes[i], now)
		veto = veto || ops[i].Vetoes(&call.Out[i])
	}
	for i := range ops {
		t.commit(call, i, &ops[i], hashes[i], veto, now)
	}
	for _, s := range order {
		t.segments[s].mu.Unlock()
	}
}

// lockAll locks the segments of all hashes, each once, in order.
func (t *Table) lockAll(hashes []Hash, order []uint16) []uint16 {
	for i := range hashes {
		s := uint16(hashes[i].segment())
		at := len(order)
		for at > 0 && order[at-1] > s {
			at--
		}
		if at > 0 && order[at-1] == s {
			continue
		}
		order = append(order, 0)
		copy(order[at+1:], order[at:])
		order[at] = s
	}
	for _, s := range order {
		t.segments[s].mu.Lock()
	}
	return order
}

// decide decides one op without changing anything.
func (t *Table) decide(call *group.Call, i int, op *group.Op, h Hash, now int64) {
	seg := &t.segments[h.segment()]
	if op.ID != 0 {
		if a, ok := t.replay(seg, h, op, now); ok {
			call.Out[i], call.Tasks[i].Replayed = a, true
			return
		}
	}
	r, ask := call.Ask(i, op)
	if !ask {
		return
	}
	call.Out[i] = t.takeLocked(seg, h, op.Params, now, r)
	if call.Answered(i, op) {
		call.Out[i] = t.takeLocked(seg, h, op.Params, now, op.Look())
		call.TooLate(i, op, now)
	}
}

// commit applies the decision about one op.
func (t *Table) commit(call *group.Call, i int, op *group.Op, h Hash, veto bool, now int64) {
	seg, a := &t.segments[h.segment()], &call.Out[i]
	adopt, do := call.Commit(i, op, veto)
	if adopt {
		t.adopt(seg, h, op.Params, now, op.Request.Known, op.Begins())
	}
	switch do {
	case group.Nothing:
		return
	case group.Look:
		*a = group.Unspent(t.takeLocked(seg, h, op.Params, now, op.Look()), a.At)
		return
	case group.Adjust:
		*a = t.adjustLocked(seg, h, op.Params, now, op)
	case group.Charge:
		*a = t.takeLocked(seg, h, op.Params, now, op.Request)
	}
	if op.ID != 0 && (a.Allowed || seg.rare == nil || seg.blockedUntil(h, now) == 0) { // takes denied by a block are not charged
		t.remember(seg, h, op, a, now)
	}
}

// adopt rewrites a state that was written under other numbers even if nothing is charged, because the decision's
// RetryAfter assumes the new ones. For the same reason it creates the bucket of a new key if begin is set.
func (t *Table) adopt(seg *segment, h Hash, p *step.Params, now int64, known *step.Known, begin bool) {
	i, ok := seg.find(h.tagFor(p.Identity()), h.extra())
	switch {
	case ok && seg.slots.at(i).expiresAt() > now:
		if s := seg.slots.at(i); s.state().Shape != p.Shape() {
			t.takeSlot(s, p, now, step.Request{Known: known}) // charges nothing
		}
	case begin:
		t.takeFree(seg, h, p, now, step.Request{Begin: true, Known: known}) // charges nothing either
	}
}

// Put replaces a key's state, which must be a bucket without marks. Without room for it, the key's quota counts as used
// up.
func (t *Table) Put(h Hash, p *step.Params, now int64, s step.State) {
	now = inRange(now)
	seg := &t.segments[h.segment()]
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if i, ok := seg.find(h.tagFor(p.Identity()), h.extra()); ok {
		at := seg.slots.at(i)
		t.arena.release(at)
		at.word &^= wideFlag
		at.set(s)
		return
	}
	if s.ExpiresAt > now && !t.insertState(seg, h, p, s, nil, now) {
		bounds.StoreMemory.Reached()
		b := bucketOf(p)
		t.sketch.charge(h, &b, now, uint64(now)<<cellScale+b.fill)
	}
}
