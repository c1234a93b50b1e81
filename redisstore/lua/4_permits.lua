
-- Permits are a sorted set by the time when they were acquired or last renewed, with one member per unit of cost. One
-- more member is always the last: its score is the time when the set expires, one TTL after the newest time ever
-- issued, and its name contains that TTL.

local slots

local function makeSlots()
  local function headOf(length)
    return 'h' .. digits(length)
  end

  -- finish writes when the set expires, and removes expired permits.
  local function finish(l)
    local head = headOf(l.length)
    redis.call('ZADD', l.key, digits(l.fresh), head)
    redis.call('PEXPIRE', l.key, math.max(0, math.ceil((l.fresh - now) / 1000)) + margin)
    if l.head and l.head ~= head then
      redis.call('ZREM', l.key, l.head)
    end
    l.head, l.adopted = head, false
    redis.call('ZREMRANGEBYSCORE', l.key, '-inf', digits(now - l.length))
  end

  -- look counts the permits in use and finds when the last of them expires.
  local function look(l)
    l.sum, l.f = 0, 0
    if not l.live then
      return
    end
    l.sum = redis.call('ZCOUNT', l.key, '(' .. digits(now - l.length), '+inf') - 1
    if l.sum > 0 then
      l.f = tonumber(redis.call('ZRANGE', l.key, -2, -2, 'WITHSCORES')[2]) + l.length
    end
  end

  local function leaves(l, much)
    local skipped = redis.call('ZCOUNT', l.key, '-inf', digits(now - l.length))
    local found = redis.call('ZRANGE', l.key, skipped + much - 1, skipped + much - 1, 'WITHSCORES')
    return {at = tonumber(found[2])}
  end

  local function adopt(l)
    if not l.adopted then
      return
    elseif l.live then
      redis.call('ZADD', l.key, digits(l.fresh), headOf(l.length))
      redis.call('ZREM', l.key, l.head)
      redis.call('PEXPIRE', l.key, math.max(0, math.ceil((l.fresh - now) / 1000)) + margin)
      l.head, l.adopted = headOf(l.length), false
    else
      redis.call('DEL', l.key)
      l.head, l.adopted = nil, false
    end
  end

  local function push(l, at, cost)
    at = math.max(at, l.newest + 1)
    if l.head and not l.live then
      redis.call('DEL', l.key)
      l.head = nil
    end
    local members, score = {}, digits(at)
    for i = 1, cost do
      members[#members + 1], members[#members + 2] = score, struct.pack('>I7I2', at, i)
      if #members >= 4000 or i == cost then
        redis.call('ZADD', l.key, unpack(members))
        members = {}
      end
    end
    l.newest, l.fresh, l.live, l.sum, l.f = at, at + l.length, true, l.sum + cost, at + l.length
    finish(l)
    return at
  end

  local function open(op, cell)
    local l = {key = cell.key, length = op.length, sum = 0, f = 0, newest = now - 1}
    l.leaves, l.push, l.adopt = leaves, push, adopt
    local tail = redis.call('ZRANGE', cell.key, -2, -1, 'WITHSCORES')
    if #tail == 0 then
      return l
    end
    local fresh, newest = tonumber(tail[#tail]), nil
    l.head = tail[#tail - 1]
    if fresh <= now then
      return l
    elseif l.head == headOf(op.length) then
      newest = fresh - op.length
    else
      l.adopted = true
      newest = #tail == 4 and tonumber(tail[2])
      if not newest or newest + op.length <= now then
        return l
      end
    end
    l.live, l.newest, l.fresh = true, newest, newest + op.length
    look(l)
    return l
  end

  -- adjust releases or renews permits. A settlement releases all of them, regardless of the cost.
  local function adjust(op, l, at, a)
    local n, delta = 0, op.settles and -COST_MOST or op.cost
    if l.live and at <= l.newest and at > now - l.length then
      n = redis.call('ZCOUNT', l.key, digits(at), digits(at))
    end
    if n == 0 and delta > 0 then -- expired: acquire again
      a = logTry(op, l, delta)
      if a.ok then
        a.at = push(l, now, delta)
        a.reset = l.f - now
      else
        adopt(l)
      end
      return a
    elseif n == 0 then
      adopt(l)
    else
      local rank, gone = redis.call('ZCOUNT', l.key, '-inf', '(' .. digits(at)), n
      if delta > 0 then
        a.at = push(l, now, n) -- before the old ones are removed, because a server out of memory still removes
        rank = redis.call('ZCOUNT', l.key, '-inf', '(' .. digits(at)) -- expired permits were removed
      else
        gone = math.min(n, -delta)
        a.granted = -gone
      end
      redis.call('ZREMRANGEBYRANK', l.key, rank, rank + gone - 1)
      finish(l)
      look(l)
    end
    logLook(op, l, a)
    return a
  end

  return {open = open, adjust = adjust}
end

kinds[7] = {
  params = function(op)
    op.count, op.length = unpack(op, 9, 10)
    slots = slots or makeSlots()
  end,
}
