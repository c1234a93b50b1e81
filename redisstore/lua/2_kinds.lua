
-- The algorithms, as in internal/step, whose comments explain them. A state is a table: f is the time when it expires,
-- shape identifies the limit parameters under which it was written.
local HORIZON = 100 * 365 * 24 * 3600 * 1000000
local FURTHEST = HORIZON + HORIZON / 4
local kinds = {}

local function ceilDiv(a, b)
  return math.ceil(a / b)
end

-- clamp returns n + delta, limited to the range of a counter.
local function clamp(n, delta, most)
  if delta < 0 then
    return math.max(0, n + delta)
  end
  return math.min(n + delta, most)
end

-- Marks are stored with a bucket that has open reservations, oldest first, as {time, low, out}: low is the lowest
-- backlog since that time, out the unsettled part of the reservations made from that time until the next mark. Both are
-- in microseconds, or in tokens for interval buckets, and at most as large as Lua's numbers are exact. The list of a
-- state is never modified, because takes may be only tried.
local MARKS, MARK_MOST, SETTLE_MOST = 32, 2 ^ 52, 2 * 3600 * 1000000

-- tidied returns the marks not older than a time that can refund something. A mark whose low is not higher than that of
-- the previous one is merged into it.
local function tidied(marks, oldest)
  local kept = {}
  for _, m in ipairs(marks) do
    local last = kept[#kept]
    if m.low > 0 and m.out > 0 and m.time >= oldest then
      if last and last.low >= m.low then
        last.out = math.min(last.out + m.out, MARK_MOST)
      else
        kept[#kept + 1] = m
      end
    end
  end
  return kept
end

-- seen returns the marks as they are before the backlog changes. A queue does not use marks from before it was a queue.
local function seen(op, s)
  local marks = {}
  if s.marks and s.f > now and not op.queue then
    local level = kinds[op.kind].level(op, s)
    for i, m in ipairs(s.marks) do
      marks[i] = {time = m.time, low = m.time < now and math.min(m.low, level) or m.low, out = m.out}
    end
    marks = tidied(marks, now - SETTLE_MOST)
  end
  return marks
end

-- withMarks returns the state with other marks.
local function withMarks(s, marks)
  if s.f <= now then
    return s
  elseif #marks == 0 then
    marks = nil
  end
  return {f = s.f, frac = s.frac, rest = s.rest, shape = s.shape, marks = marks}
end

-- markOf returns the index of the last mark that is not after a time.
local function markOf(marks, at)
  for i = #marks, 1, -1 do
    if marks[i].time <= at then
      return i
    end
  end
end

-- fold reduces the marks to the maximum number. Each excess mark is merged into the previous one, where the loss is
-- smallest.
local function fold(marks)
  while #marks > MARKS do
    local least, which
    for i = 2, #marks do
      local loss = (marks[i].low - marks[i - 1].low) * marks[i].out
      if not which or loss < least then
        least, which = loss, i
      end
    end
    marks[which - 1].out = math.min(marks[which - 1].out + marks[which].out, MARK_MOST)
    table.remove(marks, which)
  end
end

-- marked returns the state after a take was admitted at the time at.
local function marked(op, s, nextState, granted, at)
  if op.kind > 2 or op.queue or not (s.marks or op.settles) then
    return nextState
  end
  local kind, marks = kinds[op.kind], seen(op, s)
  if at > now and #marks > 0 then
    local before = kind.before(op, granted) -- the backlog just before its time
    for _, m in ipairs(marks) do
      m.low = math.min(m.low, before)
    end
    marks = tidied(marks, now - SETTLE_MOST)
  end
  if op.settles then
    local out, last = kind.held(op, granted), marks[#marks]
    local low = math.min(kind.level(op, nextState), kind.most(op), MARK_MOST)
    if last and last.time > at then
      local i = markOf(marks, at)
      if i then
        marks[i].out = math.min(marks[i].out + out, MARK_MOST)
      end
    elseif last and last.time == at then
      last.low, last.out = low, math.min(last.out + out, MARK_MOST)
    else
      marks[#marks + 1] = {time = at, low = low, out = out}
      fold(marks)
    end
  end
  return withMarks(nextState, marks)
end

-- A state with marks is not a number, so that no fast path mistakes it for a state without marks.
local function packMarks(f, frac, shape, marks)
  local fields = {f, frac, shape}
  for _, m in ipairs(marks) do
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3] = m.time, m.low, m.out
  end
  return struct.pack('<B' .. string.rep('I7', #fields), 109, unpack(fields))
end

-- unpackMarks returns the fields and the marks, or nothing if the text is not a state with marks.
local function unpackMarks(v)
  if string.byte(v) ~= 109 then
    return nil
  end
  local fields = {struct.unpack('<B' .. string.rep('I7', (#v - 1) / 7), v)}
  local marks = {}
  for i = 5, #fields - 1, 3 do -- the last field is the end position
    marks[#marks + 1] = {time = fields[i], low = fields[i + 1], out = fields[i + 2]}
  end
  return fields[2], fields[3], fields[4], marks
end

-- Buckets. A moment is at - frac/den. op.newQ and op.newR are the time that a new bucket takes to fill; they are nil if
-- it starts full. The state of a bucket with an initial level is kept for op.keep after it is full; for others op.keep
-- is 0.
local KEEP_FULL = 24 * 3600 * 1000000

local function later(op, at, frac, q, r)
  at = at + q
  if frac < r then
    at, frac = at + 1, frac + op.den
  end
  return at, frac - r
end

local function full(op, s)
  if s.f <= now then
    if op.newQ then
      return later(op, now, 0, op.newQ, op.newR)
    end
    return now, 0
  end
  local at = s.f - op.keep
  if at <= now then
    return now, 0
  elseif s.frac >= op.den then -- of another limit that has the same shape by chance
    return at, 0
  end
  return at, s.frac
end

local function earlier(op, at, frac, q, r)
  at, frac = at - q, frac + r
  if frac >= op.den then
    at, frac = at - 1, frac - op.den
  end
  return at, frac
end

local function isAfter(at, frac, thanAt, thanFrac)
  return at > thanAt or at == thanAt and frac < thanFrac
end

local function twice(op, q, r)
  q, r = 2 * q, 2 * r
  if r >= op.den then
    return q + 1, r - op.den
  end
  return q, r
end

-- drip returns how long n units take to drip: q + r/den. Products that would be too large are computed by doubling.
local function drip(op, n)
  if n == op.cost then
    return op.costQ, op.costR
  elseif n == op.burst then
    return op.fillQ, op.fillR
  end
  local q, r = n * op.unitQ, n * op.unitR
  if q < 2 ^ 52 and r < 2 ^ 52 then
    local whole = floor(r / op.den)
    return q + whole, r - whole * op.den
  end
  q, r = 0, 0
  local unitQ, unitR = op.unitQ, op.unitR
  while n > 0 do
    if n % 2 == 1 then
      q, r, n = q + unitQ, r + unitR, n - 1
      if r >= op.den then
        q, r = q + 1, r - op.den
      end
    end
    n = n / 2
    unitQ, unitR = twice(op, unitQ, unitR)
  end
  return q, r
end

-- units returns how many whole units drip in q + r/den, at most most if given, and the rest of the time. It is a binary
-- long division.
local function units(op, q, r, most)
  most = most or math.huge
  local powers, power, unitQ, unitR = {}, 1, op.unitQ, op.unitR
  while power <= most and (unitQ < q or unitQ == q and unitR <= r) do
    powers[#powers + 1] = {power, unitQ, unitR}
    power = 2 * power
    unitQ, unitR = twice(op, unitQ, unitR)
  end
  local n = 0
  for i = #powers, 1, -1 do
    local p = powers[i]
    if n + p[1] <= most and (p[2] < q or p[2] == q and p[3] <= r) then
      n, q, r = n + p[1], q - p[2], r - p[3]
      if r < 0 then
        q, r = q - 1, r + op.den
      end
    end
  end
  return n, q, r
end

local function putBucket(op, at, frac)
  if at > now + FURTHEST then
    at, frac = now + FURTHEST, 0
  end
  if at <= now then
    if op.newQ then
      return {f = now + op.keep, frac = 0, shape = op.shape}
    end
    return {f = 0}
  end
  return {f = at + op.keep, frac = frac, shape = op.shape}
end

-- begun returns the state of a key at its first request: that of a new bucket if the key has none.
local function begun(op, s)
  if op.newQ and s.f <= now then
    return putBucket(op, full(op, s))
  end
  return s
end

-- between returns the time from the second moment to the first: q + r/den.
local function between(op, at, frac, thanAt, thanFrac)
  local q, r = at - thanAt, thanFrac - frac
  if r < 0 then
    return q - 1, r + op.den
  end
  return q, r
end

local function least(q, r, otherQ, otherR)
  if q < otherQ or q == otherQ and r < otherR then
    return q, r
  end
  return otherQ, otherR
end

-- late charges an additional cost, up to a bound, and returns how much it charged.
local function late(op, s, delta)
  local fullAt, fullFrac = full(op, s)
  local mostAt, mostFrac = later(op, now, 0, op.boundQ, op.boundR)
  if isAfter(fullAt, fullFrac, mostAt, mostFrac) then
    return s, 0
  end
  local q, r = least(op.costQ, op.costR, between(op, mostAt, mostFrac, fullAt, fullFrac))
  return putBucket(op, later(op, fullAt, fullFrac, q, r)), (units(op, q, r, delta))
end

-- giveBack makes the bucket full earlier by q + r/den. It returns the change in units of its usage, which is rounded up
-- before and after.
local function giveBack(op, s, q, r, most)
  if q < 0 or q == 0 and r == 0 then
    return s, 0
  end
  local at, frac = full(op, s)
  local given, partQ, partR = units(op, q, r, most)
  if partQ > 0 or partR > 0 then
    local _, lastQ, lastR = units(op, between(op, at, frac, now, 0))
    if (lastQ > 0 or lastR > 0) and (partQ > lastQ or partQ == lastQ and partR >= lastR) then
      given = math.min(given + 1, most)
    end
  end
  return putBucket(op, earlier(op, at, frac, q, r)), -given
end

-- unmarked returns how much of a take without a mark can be refunded: the unexpired part of the charge, which is the
-- bound. It returns 0 if a later take was promised a time after it, and never a part of a take that is still in the
-- queue.
local function unmarked(op, s, at)
  local fullAt, fullFrac = full(op, s)
  local wornAt = earlier(op, fullAt, fullFrac, op.fillQ, op.fillR)
  if wornAt > math.max(at, now) then
    return 0, 0
  elseif at <= now then
    return least(op.boundQ - (now - at), op.boundR, op.costQ, op.costR)
  elseif op.costQ < op.boundQ or op.costQ == op.boundQ and op.costR < op.boundR then
    return 0, 0
  end
  return op.costQ, op.costR
end

-- settleQueue refunds a take in a queue only if no other take is queued behind it.
local function settleQueue(op, s, at, delta)
  if s.f <= now then
    return s, 0
  end
  local fullAt, fullFrac = full(op, s)
  local placeAt, placeFrac = earlier(op, fullAt, fullFrac, op.boundQ, op.boundR)
  if isAfter(placeAt, placeFrac, at, 0) then
    return s, 0
  end
  local q, r = least(op.costQ, op.costR, between(op, fullAt, fullFrac, now, 0))
  return giveBack(op, s, q, r, -delta)
end

-- settleBucket settles or refunds a take. Costs are given as times: cost is the absolute delta (or, if the limit has
-- changed, the same share of the bucket), out is the charge in whole microseconds, and bound is the maximum backlog
-- after a charge, or for a refund the original charge.
local function settleBucket(op, s, at, delta)
  local marks = seen(op, s)
  local i = op.settles and markOf(marks, at)
  if i then
    marks[i].out = marks[i].out - op.out
  end
  local nextState, given = s, 0
  if op.newQ and (delta == 0 or delta < 0 and s.f <= now) then -- a refund starts no bucket
    nextState, given = s, 0
  elseif delta >= 0 then
    nextState, given = late(op, s, delta)
  elseif op.queue then
    nextState, given = settleQueue(op, s, at, delta)
  else
    local fullAt, fullFrac = full(op, s)
    local aheadQ, aheadR = between(op, fullAt, fullFrac, now, 0)
    if not op.settles then
      local q, r = unmarked(op, s, at)
      q, r = least(q, r, aheadQ, aheadR)
      if q >= 0 then
        for _, m in ipairs(marks) do
          m.low = m.low - q - (r > 0 and 1 or 0)
        end
      end
      nextState, given = giveBack(op, s, q, r, -delta)
    elseif i then
      local lowQ, lowR = least(marks[i].low, 0, aheadQ, aheadR)
      local q, r = least(op.costQ, op.costR, lowQ, lowR)
      local left = lowQ - q - (lowR < r and 1 or 0)
      for j, m in ipairs(marks) do
        if j <= i then
          m.low = math.min(m.low, left)
        else -- these are never lower
          m.low = math.max(m.low - q - (r > 0 and 1 or 0), left)
        end
      end
      nextState, given = giveBack(op, s, q, r, op.burst)
    end
  end
  return withMarks(nextState, tidied(marks, now - SETTLE_MOST)), given
end

kinds[1] = {
  params = function(op)
    op.den, op.unitQ, op.unitR, op.fillQ, op.fillR, op.burst, op.costQ, op.costR = unpack(op, 9, 16)
    op.out, op.boundQ, op.boundR = unpack(op, 17, 19)
    op.keep = 0
    if op[20] > 0 then
      op.newQ, op.newR, op.keep = op[20] - 1, op[21], KEEP_FULL
    end
  end,
  load = function(v)
    local f, frac, shape, marks = unpackMarks(v)
    if f then
      return {f = f, frac = frac, shape = shape, marks = marks}
    elseif string.find(v, ':', 1, true) then
      f, frac, shape = string.match(v, '^(%d+):(%d+):(%d+)$')
      return {f = tonumber(f), frac = tonumber(frac), shape = tonumber(shape)}
    elseif string.byte(v) == 45 then
      return {f = tonumber(sub(v, 2, -5)) + BASE, frac = tonumber(sub(v, -2)), shape = tonumber(sub(v, -4, -3))}
    end
    return {f = tonumber(sub(v, 1, -4)) + BASE, frac = 0, shape = tonumber(sub(v, -3, -2))}
  end,
  save = function(s)
    if s.marks then
      return packMarks(s.f, s.frac, s.shape, s.marks)
    end
    return bucketText(s.f, s.frac, format('%02.0f', s.shape), 0)
  end,
  -- In whole microseconds: level is the backlog, held what a cost adds to it, before the backlog just before the time
  -- of a cost that has to wait, most the time to fill an empty bucket.
  level = function(op, s)
    local at, frac = full(op, s)
    return at - now - (frac > 0 and 1 or 0)
  end,
  held = function(op, cost)
    local q, r = drip(op, cost)
    return q + (r > 0 and 1 or 0)
  end,
  before = function(op, cost)
    local q, r = drip(op, cost)
    return math.max(0, op.fillQ - q - (op.fillR < r and 1 or 0))
  end,
  most = function(op)
    return op.fillQ
  end,
  take = function(op, s, cost)
    if cost > op.burst then
      return false
    end
    local beforeAt, beforeFrac = full(op, s)
    local q, r = drip(op, cost)
    local at, frac = later(op, beforeAt, beforeFrac, q, r)
    local late = at - now - op.fillQ
    if frac + op.fillR >= op.den then
      late = late - 1
    end
    local delay = math.max(0, late)
    local fits = late <= 0 or late <= op.wait
    if op.queue then
      delay = beforeAt - now
      fits = late <= 0 and (op.wait == 0 or delay <= op.wait)
    end
    if not fits then
      return false
    end
    return true, {f = at + op.keep, frac = frac, shape = op.shape}, now + delay, at - now
  end,
  room = function(op, s, most)
    local at, frac = full(op, s)
    local q, r = op.fillQ - (at - now), op.fillR + frac
    if r >= op.den then
      q, r = q + 1, r - op.den
    end
    return (units(op, q, r, most))
  end,
  charge = function(op, s, cost)
    local beforeAt, beforeFrac = full(op, s)
    local emptyAt, emptyFrac = later(op, now, 0, op.fillQ, op.fillR)
    if not isAfter(emptyAt, emptyFrac, beforeAt, beforeFrac) then
      return s
    end
    local q, r = drip(op, math.min(cost, op.burst))
    local at, frac = later(op, beforeAt, beforeFrac, q, r)
    if isAfter(at, frac, emptyAt, emptyFrac) then
      at, frac = emptyAt, emptyFrac
    end
    return putBucket(op, at, frac)
  end,
  adjust = settleBucket,
}

-- Buckets refilled at intervals. Amounts are pairs, refills * count - rest with rest < count, because a burst may
-- exceed Lua's exact numbers. An amount is positive if its refills are.

local function pair(op, n)
  local refills = ceilDiv(n, op.count)
  return refills, refills * op.count - n
end

local function plus(op, refills, rest, moreRefills, moreRest)
  refills, rest = refills + moreRefills, rest + moreRest
  if rest >= op.count then
    return refills - 1, rest - op.count
  end
  return refills, rest
end

local function minus(op, refills, rest, lessRefills, lessRest)
  refills, rest = refills - lessRefills, rest - lessRest
  if rest < 0 then
    return refills + 1, rest + op.count
  end
  return refills, rest
end

-- missing returns the amount missing from the bucket, and the refill time at or before now.
local function missing(op, s)
  if s.f <= now then
    return 0, 0, op.firstHit and now or now - now % op.length
  end
  local refills = ceilDiv(s.f - now, op.length)
  return refills, math.min(s.rest, op.count - 1), s.f - refills * op.length
end

local function putInterval(op, refills, rest, base)
  if refills <= 0 then
    return {f = 0}
  end
  local most = floor(FURTHEST / op.length)
  if refills > most then
    refills, rest = most, 0
  end
  return {f = base + refills * op.length, rest = rest, shape = op.shape}
end

local function refilled(op, at, till)
  if at >= till then
    return 0
  end
  return ceilDiv(till - at, op.length)
end

-- tokens returns an amount as a number, at most MARK_MOST.
local function tokens(op, refills, rest)
  local whole = (refills - 1) * op.count
  if whole >= MARK_MOST then
    return MARK_MOST
  end
  return math.min(whole + op.count - rest, MARK_MOST)
end

-- unmarkedInterval returns how much of a take without a mark can be refunded.
local function unmarkedInterval(op, refills, rest, base, at)
  local over = minus(op, refills, rest, op.burstRefills, op.burstRest)
  if base + math.max(0, over) * op.length > math.max(at, now) then
    return 0
  elseif at > now then
    return op.change < op.charged and 0 or op.change
  end
  refills, rest = pair(op, op.charged)
  refills, rest = minus(op, refills, rest, refilled(op, at, base), 0)
  return refills > 0 and math.min(op.change, tokens(op, refills, rest)) or 0
end

-- settleInterval settles or refunds a take. op.change is the absolute delta (or, if the limit has changed, the same
-- share of the bucket), op.mostRefills and op.mostRest the maximum backlog after a charge.
local function settleInterval(op, s, at, delta)
  local refills, rest, base = missing(op, s)
  local marks = seen(op, s)
  local i = op.settles and markOf(marks, at)
  if i then
    marks[i].out = marks[i].out - op.out
  end
  local change = 0 -- of the backlog
  if delta >= 0 then
    local roomRefills, roomRest = minus(op, op.mostRefills, op.mostRest, refills, rest)
    change = roomRefills > 0 and math.min(delta, tokens(op, roomRefills, roomRest)) or 0
  elseif not op.settles then
    change = -math.min(unmarkedInterval(op, refills, rest, base, at), tokens(op, refills, rest))
    for _, m in ipairs(marks) do
      m.low = m.low + change
    end
  elseif i then
    local low = math.min(marks[i].low, tokens(op, refills, rest))
    change = -math.min(op.change, low)
    for j, m in ipairs(marks) do
      if j <= i then
        m.low = math.min(m.low, low + change)
      else -- these are never lower
        m.low = math.max(m.low, low) + change
      end
    end
  end
  local nextState = s
  if change > 0 then
    refills, rest = plus(op, refills, rest, pair(op, change))
    nextState = putInterval(op, refills, rest, base)
  elseif change < 0 then
    refills, rest = minus(op, refills, rest, pair(op, -change))
    nextState = putInterval(op, refills, rest, base)
  end
  return withMarks(nextState, tidied(marks, now - SETTLE_MOST)), change
end

kinds[2] = {
  params = function(op)
    op.count, op.length, op.burstRefills, op.burstRest = unpack(op, 9, 12)
    op.change, op.out, op.charged, op.mostRefills, op.mostRest = unpack(op, 13, 17)
  end,
  load = function(v)
    local f, rest, shape, marks = unpackMarks(v)
    if not f then
      f, rest, shape = string.match(v, '^(%d+):(%d+):(%d+)$')
    end
    return {f = tonumber(f), rest = tonumber(rest), shape = tonumber(shape), marks = marks}
  end,
  save = function(s)
    if s.marks then
      return packMarks(s.f, s.rest, s.shape, s.marks)
    end
    return format('%.0f:%.0f:%.0f', s.f, s.rest, s.shape)
  end,
  level = function(op, s)
    return tokens(op, missing(op, s))
  end,
  held = function(op, cost)
    return cost
  end,
  before = function(op, cost)
    local refills, rest = minus(op, op.burstRefills, op.burstRest, pair(op, cost))
    return math.max(0, tokens(op, refills, rest))
  end,
  most = function(op)
    return tokens(op, op.burstRefills, op.burstRest)
  end,
  take = function(op, s, cost)
    local refills, rest, base = missing(op, s)
    local costRefills, costRest = pair(op, cost)
    local never = minus(op, costRefills, costRest, op.burstRefills, op.burstRest)
    if never > 0 then
      return false
    end
    refills, rest = plus(op, refills, rest, costRefills, costRest)
    local over = minus(op, refills, rest, op.burstRefills, op.burstRest)
    local delay = 0
    if over > 0 then
      delay = base + over * op.length - now
      if delay > op.wait then
        return false
      end
    end
    local nextState = putInterval(op, refills, rest, base)
    return true, nextState, now + delay, nextState.f - now
  end,
  room = function(op, s, most)
    local refills, rest = missing(op, s)
    refills, rest = minus(op, op.burstRefills, op.burstRest, refills, rest)
    local mostRefills, mostRest = pair(op, most)
    local more = minus(op, refills, rest, mostRefills, mostRest)
    if more > 0 then
      return most
    end
    return math.max(0, refills * op.count - rest)
  end,
  charge = function(op, s, cost)
    local refills, rest, base = missing(op, s)
    local room = minus(op, op.burstRefills, op.burstRest, refills, rest)
    if room <= 0 then
      return s
    end
    refills, rest = plus(op, refills, rest, pair(op, cost))
    local over = minus(op, refills, rest, op.burstRefills, op.burstRest)
    if over > 0 then
      refills, rest = op.burstRefills, op.burstRest
    end
    return putInterval(op, refills, rest, base)
  end,
  adjust = settleInterval,
}
