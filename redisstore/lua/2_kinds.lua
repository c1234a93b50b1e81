
-- From here on, the algorithms as in internal/step, whose comments explain them. A state is a table: f is when it is as
-- if there were none, shape what its numbers mean something for.
local HORIZON = 100 * 365 * 24 * 3600 * 1000000
local FURTHEST = HORIZON + HORIZON / 4
local kinds = {}

local function ceilDiv(a, b)
  return math.ceil(a / b)
end

-- clamp adds delta to n within what a counter can hold.
local function clamp(n, delta, most)
  if delta < 0 then
    return math.max(0, n + delta)
  end
  return math.min(n + delta, most)
end

-- Buckets: a moment is at - frac/den.

local function full(s)
  if s.f <= now then
    return now, 0
  end
  return s.f, s.frac
end

local function later(op, at, frac, q, r)
  at = at + q
  if frac < r then
    at, frac = at + 1, frac + op.den
  end
  return at, frac - r
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

-- drip is how long n takes to drip: q + r/den. What would not fit a product is added up by doubling.
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

-- units is how many whole units drip in q + r/den, up to a number: a long division in binary.
local function units(op, q, r, most)
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
  return n
end

local function putBucket(op, at, frac)
  if at > now + FURTHEST then
    at, frac = now + FURTHEST, 0
  end
  if at <= now then
    return {f = 0}
  end
  return {f = at, frac = frac, shape = op.den}
end

kinds[1] = {
  params = function(op)
    op.den, op.unitQ, op.unitR, op.fillQ, op.fillR, op.burst, op.costQ, op.costR = unpack(op, 9, 16)
    op.shape = op.den
  end,
  load = function(v)
    if string.find(v, ':', 1, true) then
      local f, frac, den = string.match(v, '^(%d+):(%d+):(%d+)$')
      return {f = tonumber(f), frac = tonumber(frac), shape = tonumber(den)}
    elseif string.byte(v) == 45 then
      return {f = tonumber(sub(v, 2, -5)) + BASE, frac = tonumber(sub(v, -2)), shape = tonumber(sub(v, -4, -3))}
    end
    return {f = tonumber(sub(v, 1, -2)) + BASE, frac = 0, shape = 0}
  end,
  save = function(s)
    return bucketText(s.f, s.frac, s.shape, 0)
  end,
  adopt = function(op, s)
    return {f = s.f, frac = 0, shape = op.den}
  end,
  take = function(op, s, cost)
    if cost > op.burst then
      return false
    end
    local beforeAt, beforeFrac = full(s)
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
    return true, {f = at, frac = frac, shape = op.den}, now + delay, at - now
  end,
  room = function(op, s, most)
    local at, frac = full(s)
    local q, r = op.fillQ - (at - now), op.fillR + frac
    if r >= op.den then
      q, r = q + 1, r - op.den
    end
    return units(op, q, r, most)
  end,
  charge = function(op, s, cost)
    local beforeAt, beforeFrac = full(s)
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
  adjust = function(op, s, at, delta)
    local fullAt, fullFrac = full(s)
    local q, r = op.costQ, op.costR -- of delta without its sign
    if delta >= 0 then
      if fullAt <= now then
        fullAt, fullFrac = at, 0
      end
      fullAt, fullFrac = later(op, fullAt, fullFrac, q, r)
      return putBucket(op, fullAt, fullFrac), delta
    elseif fullAt <= now then
      return s, 0
    end
    if op.queue then
      local placeAt, placeFrac = earlier(op, fullAt, fullFrac, q, r)
      if isAfter(placeAt, placeFrac, at, 0) then
        return s, 0
      end
    end
    local wornAt, wornFrac, since = now, 0, at
    if at > now and not op.queue then
      wornAt, wornFrac = earlier(op, fullAt, fullFrac, op.fillQ, op.fillR)
      since = at - 1
    end
    local left, leftFrac = later(op, 0, 0, q, r)
    if wornAt > at then
      left, leftFrac = later(op, left, leftFrac, since - wornAt, wornFrac)
    end
    if isAfter(left, leftFrac, fullAt - now, fullFrac) then
      left, leftFrac = fullAt - now, fullFrac
    end
    if left <= 0 then
      return s, 0
    end
    q, r = left, 0
    if leftFrac > 0 then
      q, r = left - 1, op.den - leftFrac
    end
    fullAt, fullFrac = earlier(op, fullAt, fullFrac, q, r)
    return putBucket(op, fullAt, fullFrac), -units(op, q, r, -delta)
  end,
}

-- Buckets refilled at intervals: amounts are pairs, refills * count - rest with rest < count, because a burst may be
-- larger than Lua's numbers are exact for. An amount is positive if its refills are.

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

-- missing is what is missing from the bucket, and the boundary at or before now.
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

kinds[2] = {
  params = function(op)
    op.count, op.length, op.burstRefills, op.burstRest, op.shape = unpack(op, 9, 13)
  end,
  load = function(v)
    local f, rest, shape = string.match(v, '^(%d+):(%d+):(%d+)$')
    return {f = tonumber(f), rest = tonumber(rest), shape = tonumber(shape)}
  end,
  save = function(s)
    return format('%.0f:%.0f:%.0f', s.f, s.rest, s.shape)
  end,
  adopt = function(op, s)
    return {f = s.f, rest = s.rest, shape = op.shape}
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
  adjust = function(op, s, at, delta)
    local refills, rest, base = missing(op, s)
    local changeRefills, changeRest = pair(op, math.abs(delta))
    if delta >= 0 then
      if refills == 0 then
        if op.firstHit and at < now then
          base = now - (now - at) % op.length
        end
        refills, rest = minus(op, changeRefills, changeRest, refilled(op, at, base), 0)
        return putInterval(op, refills, rest, base), delta
      end
      refills, rest = plus(op, refills, rest, changeRefills, changeRest)
      return putInterval(op, refills, rest, base), delta
    end
    local till = base
    if at > now then
      local over = minus(op, refills, rest, op.burstRefills, op.burstRest)
      till = till + math.max(0, over) * op.length
    end
    changeRefills, changeRest = minus(op, changeRefills, changeRest, refilled(op, at, till), 0)
    if changeRefills <= 0 then
      changeRefills, changeRest = 0, 0
    end
    local more = minus(op, changeRefills, changeRest, refills, rest)
    if more > 0 then
      changeRefills, changeRest = refills, rest
    end
    refills, rest = minus(op, refills, rest, changeRefills, changeRest)
    return putInterval(op, refills, rest, base), changeRest - changeRefills * op.count
  end,
}
