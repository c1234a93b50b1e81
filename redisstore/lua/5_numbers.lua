
-- States that were written under other limit parameters of their rule. The caller sends these parameters only after a
-- reply "changed", or when it knows that they are needed. op.to are the parameters at hand, or those of the limit that
-- it is a part of; op.from are, by shape, those under which the state may have been written. A state whose parameters
-- are unknown is treated as fully used.
local convert
if plain >= 4 then
  convert = {}

  -- Amounts whose products exceed Lua's exact numbers are lists of digits, the lowest first. Only the highest digit is
  -- negative if the amount is.
  local DIGIT = 2 ^ 24

  local function large(n)
    local l = {}
    repeat
      l[#l + 1] = n % DIGIT
      n = floor(n / DIGIT)
    until n == 0
    return l
  end

  local function times(a, b)
    local p = {}
    for i = 1, #a do
      local carry = 0
      for j = 1, #b do
        local sum = (p[i + j - 1] or 0) + a[i] * b[j] + carry
        carry = floor(sum / DIGIT)
        p[i + j - 1] = sum - carry * DIGIT
      end
      p[i + #b] = carry
    end
    return p
  end

  -- less returns a - b, or a + b if the sign is -1.
  local function less(a, b, sign)
    local d, carry = {}, 0
    for i = 1, math.max(#a, #b) do
      local sum = (a[i] or 0) - sign * (b[i] or 0) + carry
      carry = floor(sum / DIGIT)
      d[i] = sum - carry * DIGIT
    end
    d[#d + 1] = carry
    return d
  end

  -- about returns an amount as the nearest number.
  local function about(l)
    local n = 0
    for i = #l, 1, -1 do
      n = n * DIGIT + l[i]
    end
    return n
  end

  -- quotient returns a / b as a number, rounded up or down, and 2^53 if it exceeds Lua's exact numbers.
  local function quotient(a, b, up)
    local size = about(b)
    if about(a) / size >= 2 ^ 53 then
      return 2 ^ 53
    end
    local q, rest = 0, a
    local guess = floor(about(a) / size)
    while guess ~= 0 do
      q, rest = q + guess, less(rest, times(b, large(math.abs(guess))), guess < 0 and -1 or 1)
      guess = floor(about(rest) / size)
      if guess == -1 then -- or a tiny negative fraction
        break
      end
    end
    while rest[#rest] < 0 do
      q, rest = q - 1, less(rest, b, -1)
    end
    local more = less(rest, b, 1)
    while more[#more] >= 0 do
      q, rest, more = q + 1, more, less(more, b, 1)
    end
    if up and about(rest) > 0 then
      q = q + 1
    end
    return q
  end

  -- share returns n * a / b for large a and b.
  local function share(n, a, b, up)
    return quotient(times(large(n), a), b, up)
  end

  -- scale returns a function that converts amounts of one bucket to the same share of another.
  local function scale(a, b)
    local whole, of = about(a), about(b)
    if whole < 2 ^ 53 and of < 2 ^ 53 then -- so both are exact
      local x, y = whole, of
      while y > 0 do
        x, y = y, x % y
      end
      whole, of = whole / x, of / x
    end
    return function(n, up)
      local product = n * whole
      if product >= 2 ^ 53 or of >= 2 ^ 53 then
        return share(n, a, b, up)
      end
      local rest = product % of
      return (product - rest) / of + (up and rest > 0 and 1 or 0)
    end
  end

  -- scaledMarks returns the state with its previous marks, scaled to another bucket.
  local function scaledMarks(op, s, was, scaled)
    local marks, level = {}, kinds[op.kind].level(op, s)
    for i, m in ipairs(was) do
      marks[i] = {
        time = m.time, low = math.min(scaled(m.low, false), level), out = math.min(scaled(m.out, true), MARK_MOST),
      }
    end
    return withMarks(s, tidied(marks, 0))
  end

  -- fillOf returns the time to fill a bucket, in fractions of a microsecond.
  local function fillOf(n)
    return less(times(large(n.den), large(n.fillQ)), large(n.fillR), -1)
  end

  -- told reads limit parameters: those of the limit at hand if own is set, else others.
  local function told(kind, own, pos)
    local n, a, b, c, d = {}, 0, 0, 0, 0
    a, b, c, d, pos = struct.unpack('<dddd', blob, pos)
    if kind == 1 then
      n.den, n.fillQ, n.fillR, n.cap = a, b, c, d
    elseif kind == 2 and own then
      n.burst, n.capRefills, n.capRest = large(a), c, d
      table.insert(n.burst, 1, b)
    elseif kind == 2 then
      n.count, n.length, n.burst = a, b, large(c)
      table.insert(n.burst, 1, d)
    else
      n.length = a
    end
    return n, pos
  end

  -- read reads the limit parameters of a call: lists of others by shape, then for each take its own parameters and the
  -- index of its list. It returns the end position.
  convert.read = function(ops, pos)
    local lists, number, kind, size, shape = {}, 0, 0, 0, 0
    number, pos = struct.unpack('<H', blob, pos)
    for i = 1, number do
      local list = {}
      kind, size, pos = struct.unpack('<BH', blob, pos)
      for _ = 1, size do
        shape, pos = struct.unpack('<B', blob, pos)
        list[shape], pos = told(kind, false, pos)
      end
      lists[i] = list
    end
    for _, op in ipairs(ops) do
      number, pos = struct.unpack('<H', blob, pos)
      op.from = lists[number]
      op.to, pos = told(op.kind, true, pos)
    end
    return pos
  end

  -- Buckets keep their used share, also of a negative balance.
  convert[1] = function(op, s)
    local from, to, fullAt = op.from[s.shape], op.to, s.f - op.keep
    if fullAt <= now then -- full under any parameters, since the same time
      return {f = s.f, frac = 0, shape = op.shape}
    elseif not from then
      return putBucket(op, now + math.min(to.fillQ + (to.fillR > 0 and 1 or 0), to.cap), 0)
    end
    local frac, used = s.frac < from.den and s.frac or 0, nil
    local scaled
    if from.fillR == 0 and to.fillR == 0 then
      scaled = scale(large(to.fillQ), large(from.fillQ))
    else
      local a, b = times(large(from.den), fillOf(to)), times(fillOf(from), large(to.den))
      scaled = function(n, up)
        return share(n, a, b, up)
      end
    end
    if frac == 0 then
      used = scaled(fullAt - now, true)
    else
      local part = less(times(large(fullAt - now), large(from.den)), large(frac), 1)
      used = quotient(times(part, fillOf(to)), times(fillOf(from), large(to.den)), true)
    end
    local nextState = putBucket(op, now + math.min(used, to.cap), 0)
    return s.marks and scaledMarks(op, nextState, s.marks, scaled) or nextState
  end

  -- spread returns a / b, rounded up, as an amount of an interval bucket, at most its cap.
  local function spread(op, a, b)
    local to, count = op.to, large(op.count)
    local refills = quotient(a, times(b, count), true)
    if refills > to.capRefills then
      return to.capRefills, to.capRest
    end
    local rest = quotient(less(times(times(large(refills), count), b), a, 1), b, false)
    if refills == to.capRefills and rest < to.capRest then
      return refills, to.capRest
    end
    return refills, rest
  end

  convert[2] = function(op, s)
    local from, to = op.from[s.shape], op.to
    local _, _, base = missing(op, {f = 0})
    if not from then
      local refills, rest = spread(op, to.burst, {1})
      return putInterval(op, refills, rest, base)
    end
    local used = times(large(ceilDiv(s.f - now, from.length)), large(from.count))
    used = less(used, large(math.min(s.rest, from.count - 1)), 1)
    local refills, rest = spread(op, times(used, to.burst), from.burst)
    local nextState = putInterval(op, refills, rest, base)
    return s.marks and scaledMarks(op, nextState, s.marks, scale(to.burst, from.burst)) or nextState
  end

  -- inside returns the part of the previous window's count that still counts, rounded up.
  local function inside(count, begin, length)
    return share(count, large(math.min(length, begin + length - now)), large(length), true)
  end

  -- Counters keep their estimate, as if all of it had been used now.
  convert[4] = function(op, s)
    local from, used = op.from[s.shape], s.cur + s.prev
    if from then
      local c = counter(from, s)
      used = c.cur + inside(c.prev, c.start, from.length)
    end
    local c = counterAt(op)
    c.cur = math.min(used, COUNTER_MOST)
    return putCounter(op, c)
  end

  convert[5] = function(op, s)
    local from, counts, total = op.from[s.shape], s.counts, 0
    if from then
      local at
      at, counts = ring({slice = from.length, size = op.size}, s)
      local oldest = counts[(at.index + 1) % op.size]
      total = inside(oldest, at.start, from.length) - oldest
    end
    for i = 0, op.size - 1 do
      total = total + counts[i]
    end
    local at, kept = ringAt(op), {}
    for i = 0, op.size - 1 do
      kept[i] = 0
    end
    kept[at.index] = total
    return putRing(op, at, kept)
  end
end
