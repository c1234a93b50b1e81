
-- Failover hints: the last state that the caller received for a cell, from another server that may have failed before
-- replicating it. Each regain returns the later of the stored state and the hint, both converted to the limit at hand,
-- or nothing if that is the stored one. It never returns more than an exhausted limit, so that a wrong hint can do no
-- more harm than that.
local regain
if plain % 4 >= 2 then
  regain = {}

  regain[1] = function(op, s, h)
    local at, frac = later(op, now, 0, op.fillQ, op.fillR)
    local seenAt, seenFrac = full(op, h)
    if not isAfter(seenAt, seenFrac, at, frac) then
      at, frac = seenAt, seenFrac
    end
    if isAfter(at, frac, full(op, s)) then
      return putBucket(op, at, frac)
    end
  end

  regain[2] = function(op, s, h)
    local refills, rest, base = missing(op, h)
    local over = minus(op, refills, rest, op.burstRefills, op.burstRest)
    if over > 0 then
      refills, rest = op.burstRefills, op.burstRest
    end
    local m = putInterval(op, refills, rest, base)
    if s.f <= now or m.f > s.f or m.f == s.f and m.rest < s.rest then
      return m
    end
  end

  -- A window that starts with its first request ends at the earlier of both ends: the lost window continues.
  regain[3] = function(op, s, h)
    local n, f, grace, live = math.min(h.n, op.count + op.over), windowAt(op).f, h.grace, s.f > now
    if op.firstHit then
      f = math.min(h.f, f)
    elseif h.f ~= f or live and s.f ~= f then
      return nil
    end
    if n == 0 or live and n <= s.n then
      return nil
    elseif live then
      f, grace = math.min(f, s.f), math.max(grace, s.grace)
    end
    return {f = f, n = n, grace = grace, shape = op.shape}
  end

  regain[4] = function(op, s, h)
    local begin, c, seen = counterAt(op).start, counter(op, s), counter(op, h)
    local cur, prev = math.max(c.cur, math.min(seen.cur, op.count)), math.max(c.prev, math.min(seen.prev, op.count))
    if c.start == begin and seen.start == begin and (cur > c.cur or prev > c.prev) then
      return putCounter(op, {start = begin, cur = cur, prev = prev})
    end
  end

  regain[5] = function(op, s, h)
    local begin, at, counts = ringAt(op).start, ring(op, s)
    local seenAt, seen = ring(op, h)
    if at.start ~= begin or seenAt.start ~= begin then
      return nil
    end
    local more = false
    for i = 0, op.size - 1 do
      local n = math.min(seen[i], op.count)
      if n > counts[i] then
        counts[i], more = n, true
      end
    end
    return more and putRing(op, at, counts)
  end
end
