
-- Sliding logs are sorted sets by time. A member contains its cost and the total cost of all members before it since
-- the log began. The sum of a window is thus a difference between its last and first members, and the member whose
-- expiry makes room is found by binary search. Members have a fixed width, so that those of one microsecond sort in
-- insertion order. One more member, HEAD, has the time when the log expires as its score and so is always the last.

local HEAD, COST_MOST, ENTRIES_MOST = 'h', 16383, 10000

local function member(before, cost)
  return struct.pack('>I7I2', before, cost)
end

local function digits(n)
  return format('%.0f', n)
end

-- entryAt returns the entry at a rank.
local function entryAt(key, rank)
  local found = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
  local before, cost = struct.unpack('>I7I2', found[1])
  return {name = found[1], at = tonumber(found[2]), before = before, cost = cost}
end

local leaves, push, adoptLog

-- openLog reads the log for the limit at hand. A log written under another length expires when it would under this one.
local function openLog(op, cell)
  local l = {key = cell.key, f = 0, sum = 0, length = op.length, leaves = leaves, push = push, adopt = adoptLog}
  local tail = redis.call('ZRANGE', cell.key, -2, -1, 'WITHSCORES')
  l.stored = #tail > 0
  if not l.stored then
    return l
  end
  local f, last = tonumber(tail[4]), tonumber(tail[2])
  if f <= now then
    return l
  end
  if f - last ~= op.length then
    l.adopted, f = true, last + op.length
    if f <= now then
      return l
    end
  end
  local before, cost = struct.unpack('>I7I2', tail[1])
  local head = redis.call('ZRANGEBYSCORE', cell.key, '(' .. digits(now - op.length), '+inf', 'LIMIT', 0, 1)
  l.first = struct.unpack('>I7I2', head[1])
  l.last = {name = tail[1], at = last, before = before, cost = cost}
  l.f, l.sum = f, before + cost - l.first
  return l
end

-- leaves returns the first entry with whose expiry at least this much has left the window, and its rank.
function leaves(l, much)
  local skipped = redis.call('ZCOUNT', l.key, '-inf', digits(now - l.length))
  local low, high = 0, math.min(much, redis.call('ZCARD', l.key) - 1 - skipped) - 1
  local e = entryAt(l.key, skipped + high) -- this one, if every entry costs 1
  if e.before - l.first >= much then
    high = high - 1
    while low < high do
      local middle = floor((low + high) / 2)
      e = entryAt(l.key, skipped + middle)
      if e.before + e.cost - l.first >= much then
        high = middle
      else
        low = middle + 1
      end
    end
    e = entryAt(l.key, skipped + high)
  end
  return e, skipped + high
end

-- A server that is out of memory rejects writes that add and still executes those that remove. So entries are always
-- added before any are removed, and an error leaves the log unchanged.

local function expire(l)
  redis.call('PEXPIRE', l.key, math.max(0, math.ceil((l.f - now) / 1000)) + margin)
end

local function endsAt(l, f)
  l.f = f
  redis.call('ZADD', l.key, digits(f), HEAD)
  expire(l)
end

-- prune removes expired entries. It runs only when an entry is added, because a clock that is behind would miss the
-- removed ones.
local function prune(l)
  redis.call('ZREMRANGEBYSCORE', l.key, '-inf', digits(now - l.length))
end

function push(l, at, cost)
  local e = {at = at, before = 0, cost = cost}
  local last, merged = l.last, false
  if last then
    e.at = math.max(at, last.at)
    e.before = last.before + last.cost
    local full = l.sum >= ENTRIES_MOST and
      redis.call('ZCOUNT', l.key, '(' .. digits(now - l.length), '+inf') > ENTRIES_MOST
    merged = full or e.at == last.at and last.cost + cost <= COST_MOST
    if merged then
      e.before, e.cost = last.before, math.min(last.cost + cost, COST_MOST)
      cost = e.cost - last.cost
    end
  else
    l.first = 0
    if l.stored then
      redis.call('DEL', l.key)
    end
  end
  e.name = member(e.before, e.cost)
  l.f = e.at + l.length
  redis.call('ZADD', l.key, digits(e.at), e.name, digits(l.f), HEAD)
  expire(l)
  if last then
    if merged and e.name ~= last.name then
      redis.call('ZREM', l.key, last.name)
    end
    prune(l)
  end
  l.last, l.sum, l.stored = e, l.sum + cost, true
  return e.at
end

-- logLook sets the remaining quota and the time until the log expires.
local function logLook(op, l, a)
  a.remaining, a.reset = math.max(0, op.count - l.sum), math.max(0, l.f - now)
end

local function logTry(op, l, cost)
  local a = {granted = 0, retry = 0, at = now}
  logLook(op, l, a)
  local over = l.sum + cost - op.count
  if cost > op.count then
    a.never = true
  elseif over > 0 then
    a.retry = l.leaves(l, over).at + op.length - now
  else
    a.ok, a.granted, a.remaining = true, cost, a.remaining - cost
  end
  return a
end

-- logPeek reports whether a cost of 1 would be allowed.
local function logPeek(op, l)
  local a = logTry(op, l, 1)
  a.granted = 0
  logLook(op, l, a)
  return a
end

-- adoptLog updates the expiry of a log that was written under another length.
function adoptLog(l)
  if not l.adopted then
    return
  elseif l.last then
    endsAt(l, l.f)
  else
    redis.call('DEL', l.key)
    l.stored = false
  end
end

local function chargeLog(op, l, cost)
  cost = math.min(cost, op.count)
  local at, spare = now, l.sum + cost - op.count -- cost of older entries that no decision can depend on
  if l.last and spare > 0 then
    at = math.max(at, l.last.at)
    endsAt(l, l.f)
    if spare >= l.sum then
      l.last, l.sum = nil, 0
    else
      local keep, rank = leaves(l, spare + 1)
      if rank > 0 then
        redis.call('ZREMRANGEBYRANK', l.key, 0, rank - 1)
      end
      l.sum, l.first = l.sum - (keep.before - l.first), keep.before
    end
  end
  push(l, at, cost)
end

-- shift adds delta to the total before each entry from a rank on.
local function shift(l, rank, delta)
  local entries = redis.call('ZRANGE', l.key, rank, -2, 'WITHSCORES')
  redis.call('ZREMRANGEBYRANK', l.key, rank, -2)
  for i = 1, #entries, 2 do
    local before, cost = struct.unpack('>I7I2', entries[i])
    redis.call('ZADD', l.key, entries[i + 1], member(before + delta, cost))
  end
end

-- adjustLog charges or refunds, and returns the change. A charge is a separate entry.
local function adjustLog(op, l, at, delta)
  if delta > 0 then
    local sum = l.sum
    push(l, now, math.min(delta, COST_MOST))
    return l.sum - sum
  end
  local e
  if at > now - op.length and l.last and l.last.at >= at then
    e = entryAt(l.key, redis.call('ZCOUNT', l.key, '-inf', '(' .. digits(at)))
  end
  if not e or e.at ~= at or delta == 0 then
    adoptLog(l)
    return 0
  end
  endsAt(l, l.f)
  prune(l)
  local cost = math.max(0, e.cost + delta)
  local rank = redis.call('ZRANK', l.key, e.name)
  redis.call('ZREM', l.key, e.name)
  if cost ~= e.cost and redis.call('ZCARD', l.key) - 1 > rank then
    shift(l, rank, cost - e.cost)
  end
  if cost > 0 then
    redis.call('ZADD', l.key, digits(e.at), member(e.before, cost))
  end
  l.sum = l.sum + cost - e.cost
  if redis.call('ZCARD', l.key) == 1 then
    redis.call('DEL', l.key)
    l.last, l.f, l.stored = nil, 0, false
  else
    l.last = entryAt(l.key, -2)
    endsAt(l, l.last.at + op.length)
  end
  return cost - e.cost
end

kinds[6] = {
  params = function(op)
    op.count, op.length = unpack(op, 9, 10)
  end,
}
