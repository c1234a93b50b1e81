
-- Fixed windows.

local GRACE_MOST, COUNTER_MOST = 2 ^ 31 - 1, 2 ^ 32 - 1

-- windowAt returns the window that contains now; the caller computed the calendar windows.
local function windowAt(op)
  if op.firstHit then
    return {start = now, f = now + op.length, n = 0, grace = 0}
  elseif op.calendar then
    if now < op.boundary then
      return {start = op.first, f = op.boundary, n = 0, grace = 0}
    end
    return {start = op.boundary, f = op.final, n = 0, grace = 0}
  end
  local begin = now - now % op.length
  return {start = begin, f = begin + op.length, n = 0, grace = 0}
end

local function window(op, s)
  if s.f <= now then
    return windowAt(op)
  end
  return {start = s.f - op.length, f = s.f, n = s.n, grace = s.grace}
end

-- add adds delta at a time. Exceeding the limit starts the grace period of a soft limit.
local function add(op, w, at, delta)
  local before = w.n
  w.n = clamp(w.n, delta, COUNT_MOST)
  if op.over > 0 and before <= op.count and w.n > op.count then
    w.grace = 0
    if at + op.grace < w.f then
      w.grace = math.min(ceilDiv(w.f - at - op.grace, op.grain), GRACE_MOST)
    end
  end
end

-- windowRoom returns the available quota, which for a soft limit includes the soft excess until its grace period ends.
local function windowRoom(op, w)
  if op.over > 0 and w.n > op.count and now > w.f - w.grace * op.grain then
    return 0
  end
  return math.max(0, op.count + op.over - w.n)
end

local function putWindow(op, w)
  if w.n == 0 then
    return {f = 0}
  end
  return {f = w.f, n = w.n, grace = w.grace, shape = op.shape}
end

kinds[3] = {
  params = function(op)
    op.count, op.length, op.over, op.grace, op.grain = unpack(op, 9, 13)
    op.first, op.boundary, op.final, op.atFirst, op.atFinal = unpack(op, 14, 18)
  end,
  load = function(v)
    local f, n, grace, shape = string.match(v, '^(%d+):(%d+):(%d+):(%d+)$')
    if f then
      return {f = tonumber(f), n = tonumber(n), grace = tonumber(grace), shape = tonumber(shape)}
    end
    f = tonumber(sub(v, -12, -4)) * 1000000 + BASE
    return {f = f, n = tonumber(sub(v, 1, -13)), grace = 0, shape = tonumber(sub(v, -3))}
  end,
  save = function(s)
    return windowText(s.f, s.n, s.grace, s.shape)
  end,
  adopt = function(op, s)
    local w = windowAt(op)
    add(op, w, now, s.n)
    return putWindow(op, w)
  end,
  take = function(op, s, cost)
    local w = window(op, s)
    if cost > windowRoom(op, w) then
      return false
    end
    add(op, w, now, cost)
    return true, putWindow(op, w), now, w.f - now
  end,
  room = function(op, s, most)
    return math.min(most, windowRoom(op, window(op, s)))
  end,
  charge = function(op, s, cost)
    local w = window(op, s)
    add(op, w, now, cost)
    return putWindow(op, w)
  end,
  adjust = function(op, s, at, delta)
    local w = window(op, s)
    if delta < 0 then
      if op.calendar then
        w.start = op.atFirst
      end
      if s.f <= now or op.calendar and op.atFinal ~= w.f or at < w.start or at >= w.f then
        return s, 0
      end
    end
    local before = w.n
    add(op, w, now, delta)
    return putWindow(op, w), w.n - before
  end,
}

-- Sliding counters.

-- weight returns the share of the previous window that still counts, in 1/65,536, rounded up. It uses two digits of
-- base 256, because the product would be too large.
local function weight(begin, length)
  local left = math.min(length, begin + length - now) * 256
  local high = floor(left / length)
  left = (left - high * length) * 256
  return high * 256 + ceilDiv(left, length)
end

local function counterAt(op)
  return {start = now - now % op.length, cur = 0, prev = 0}
end

local function counter(op, s)
  if s.f <= now then
    return counterAt(op)
  end
  local begin = s.f - 2 * op.length
  if now >= begin + op.length then
    return {start = begin + op.length, cur = 0, prev = s.cur}
  end
  return {start = begin, cur = s.cur, prev = s.prev}
end

local function counterUsed(op, c)
  if c.prev == 0 then
    return c.cur
  end
  return c.cur + floor((c.prev * weight(c.start, op.length) + op.half) / 65536)
end

local function putCounter(op, c)
  if c.cur == 0 and c.prev == 0 then
    return {f = 0}
  elseif c.cur == 0 then -- stored as the state of the previous window
    return {f = c.start + op.length, cur = c.prev, prev = 0, shape = op.shape}
  end
  return {f = c.start + 2 * op.length, cur = c.cur, prev = c.prev, shape = op.shape}
end

kinds[4] = {
  params = function(op)
    op.count, op.length, op.half = unpack(op, 9, 11)
  end,
  load = function(v)
    local f, cur, prev, shape = string.match(v, '^(%d+):(%d+):(%d+):(%d+)$')
    return {f = tonumber(f), cur = tonumber(cur), prev = tonumber(prev), shape = tonumber(shape)}
  end,
  save = function(s)
    return format('%.0f:%.0f:%.0f:%.0f', s.f, s.cur, s.prev, s.shape)
  end,
  take = function(op, s, cost)
    local c = counter(op, s)
    if counterUsed(op, c) + cost > op.count then
      return false
    end
    c.cur = c.cur + cost
    local nextState = putCounter(op, c)
    return true, nextState, now, nextState.f - now
  end,
  room = function(op, s, most)
    return math.min(most, math.max(0, op.count - counterUsed(op, counter(op, s))))
  end,
  charge = function(op, s, cost)
    local c = counter(op, s)
    c.cur = clamp(c.cur, cost, COUNTER_MOST)
    return putCounter(op, c)
  end,
  adjust = function(op, s, at, delta)
    local c = counter(op, s)
    local field
    if delta > 0 or at >= c.start and at < c.start + op.length then
      field = 'cur'
    elseif at >= c.start - op.length and at < c.start then
      field = 'prev'
    else
      return s, 0
    end
    local before = c[field]
    c[field] = clamp(before, delta, COUNTER_MOST)
    return putCounter(op, c), c[field] - before
  end,
}

-- Sliding counters over sub-windows: a ring of counts, with the count of sub-window i at i mod size.

local function ringFormat(size)
  return '<dB' .. string.rep('I5', size)
end

local function ringAt(op)
  local number = floor(now / op.slice)
  return {start = number * op.slice, index = number % op.size}
end

-- ring returns a copy of the counts, advanced to now.
local function ring(op, s)
  local at, counts = ringAt(op), {}
  if s.f <= now then
    for i = 0, op.size - 1 do
      counts[i] = 0
    end
    return at, counts
  end
  for i = 0, op.size - 1 do
    counts[i] = s.counts[i]
  end
  local last = s.f - op.size * op.slice
  if at.start <= last then
    return {start = last, index = floor(last / op.slice) % op.size}, counts
  end
  for begin = last + op.slice, at.start, op.slice do
    counts[floor(begin / op.slice) % op.size] = 0
  end
  return at, counts
end

local function putRing(op, at, counts)
  return {f = at.start + op.size * op.slice, counts = counts, size = op.size, shape = op.shape}
end

local function ringUsed(op, at, counts)
  local whole = 0
  for i = 0, op.size - 1 do
    whole = whole + counts[i]
  end
  local oldest = counts[(at.index + 1) % op.size]
  return whole - oldest + floor((oldest * weight(at.start, op.slice) + op.half) / 65536)
end

kinds[5] = {
  params = function(op)
    op.count, op.slice, op.size, op.half = unpack(op, 9, 12)
  end,
  load = function(v)
    local size = (#v - 9) / 5
    local fields = {struct.unpack(ringFormat(size), v)}
    local counts = {}
    for i = 0, size - 1 do
      counts[i] = fields[3 + i]
    end
    return {f = fields[1], shape = fields[2], counts = counts, size = size}
  end,
  save = function(s)
    return struct.pack(ringFormat(s.size), s.f, s.shape, unpack(s.counts, 0, s.size - 1))
  end,
  take = function(op, s, cost)
    local at, counts = ring(op, s)
    if ringUsed(op, at, counts) + cost > op.count then
      return false
    end
    counts[at.index] = counts[at.index] + cost
    local nextState = putRing(op, at, counts)
    return true, nextState, now, nextState.f - now
  end,
  room = function(op, s, most)
    local at, counts = ring(op, s)
    return math.min(most, math.max(0, op.count - ringUsed(op, at, counts)))
  end,
  charge = function(op, s, cost)
    local at, counts = ring(op, s)
    counts[at.index] = clamp(counts[at.index], cost, COUNTER_MOST)
    return putRing(op, at, counts)
  end,
  adjust = function(op, s, at, delta)
    local current, counts = ring(op, s)
    local index = current.index
    if delta < 0 then
      local number = floor(at / op.slice)
      local age = floor(current.start / op.slice) - number
      if age < 0 or age >= op.size or s.f <= now then
        return s, 0
      end
      index = number % op.size
    end
    local before = counts[index]
    if before == 0 and delta < 0 then
      return s, 0
    end
    counts[index] = clamp(before, delta, COUNTER_MOST)
    for _ = 1, op.size do -- the newest non-zero count determines when the state expires
      if counts[current.index] > 0 then
        return putRing(op, current, counts), counts[index] - before
      end
      current.start, current.index = current.start - op.slice, (current.index - 1) % op.size
    end
    return {f = 0}, counts[index] - before
  end,
}
