-- Sluice's limits in Redis. KEYS are pairs of a state key and a block key, one pair per cell, followed by the keys of
-- idempotency IDs. ARGV[1] is everything else, packed: the header, then one record per take. The script has no other
-- input.
--
-- The caller implements the algorithms too. It only needs the time and the previously stored states, and computes the
-- decisions from them. The decisions made here are returned as well, so that the caller notices any difference.
--
-- Times are in microseconds. No number may reach 2^53, because larger numbers are not exact in Lua.

local blob = ARGV[1]
local now, nonce, margin, count, plain, _, kind, _, shape, cost, a, b, c, d, e = struct.unpack('<dddHBHBBc2dddddd', blob)
local start = 28 -- position of the first record, which has already been read if it is that of a fast take
local time
if now == 0 then
  time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local values
if #KEYS <= 4000 then
  values = redis.call('MGET', unpack(KEYS))
else -- more than Lua's stack can hold
  values = {}
  for i = 1, #KEYS, 4000 do
    for _, v in ipairs(redis.call('MGET', unpack(KEYS, i, math.min(i + 3999, #KEYS)))) do
      values[#values + 1] = v
    end
  end
end
local BASE = 1767225600000000 -- states count from 2026, to save digits
local COUNT_MOST = 2 ^ 33 - 1 -- maximum count of a window
local format, sub, floor = string.format, string.sub, math.floor

-- The fast paths return one string, which costs the server half as much as a list: the nonce as received, a digit for
-- each take, the time in seconds and microseconds, and the previous state of each cell, separated by dots.
local stamp
if time then
  stamp = time[1] .. '.' .. time[2] .. '.'
else
  stamp = format('%.0f.%.0f.', floor(now / 1000000), now % 1000000)
end

-- The fastest path, for one fast take of the most common kind: a bucket of whole microseconds that was used before. The
-- code below handles this case too, like every other.
local TERM = 2 ^ 24
if plain == 1 and count == 1 and kind == 1 and b == 0 and values[1] and not values[2] then
  local v = values[1]
  local was = tonumber(sub(v, 1, -4))
  if was and was > 0 and sub(v, -3, -2) == shape then
    was = was + BASE
    local f, verdict = (was > now and was or now) + a, nil
    if f > now + d then
      verdict = '0'
    elseif sub(v, -1) == '1' and was - was % TERM == f - f % TERM then
      redis.call('INCRBY', KEYS[1], format('%d', (f - was) * 1000))
      verdict = '1'
    end
    if verdict then
      return sub(blob, 9, 16) .. verdict .. stamp .. v
    end
  end
end

-- Redis stores integers of up to 19 digits in place of a pointer, so states are stored as integers where possible:
--  bucket             time when it is full, two digits of its shape, one more digit
--  bucket, fraction   minus sign, that time, two digits of its shape, two digits of the fraction
--  window             count, end in seconds, shape
-- The shape determines the denominator of the fraction.
--
-- Adding to an integer costs the server a third as much as setting it, but does not change the TTL. The TTL of a window
-- stays the same. The TTL of a bucket that is used more than once is extended by up to two terms, regardless of its
-- limit, and renewed only when the term changes; the last digit is then 1. The increment is formatted here, because
-- Redis would format it as a fraction, which is slower.
local function bucketText(f, frac, shape, digit)
  local since = f - BASE
  if frac == 0 and since > 0 then
    return format('%.0f%s%.0f', since, shape, digit)
  elseif frac < 100 and since > 0 and since < 900000000000000 then
    return format('-%.0f%s%02.0f', since, shape, frac)
  end
  return format('%.0f:%.0f:%s', f, frac, shape)
end

local function windowText(f, n, grace, shape)
  local since = (f - BASE) / 1000000
  if grace == 0 and n <= 9000000 and since > 0 and since < 1000000000 and since == floor(since) then
    return format('%.0f%09.0f%03.0f', n, since, shape)
  end
  return format('%.0f:%.0f:%.0f:%.0f', f, n, grace, shape)
end

-- write stores a state until it expires, plus the margin.
local function write(key, text, f)
  redis.call('SET', key, text, 'PX', math.max(0, math.ceil((f - now) / 1000)) + margin)
end

-- The fast path, for takes of ordinary buckets and windows, if all cells of a group are different. It comes before the
-- functions of the algorithms, because every run of the script re-creates the functions that it reaches. It writes
-- last, so that it can leave any unusual case to those functions.
--
-- The cells are in one list, because creating a list costs more than using it. Each cell has 8 values, from index 8 *
-- cell: f and n, their previous values, c (negative for a window), f and n as the current group would leave them, and
-- the digits of a bucket's shape.
local function short()
  local known, group, size, veto, verdicts, pos = {0, 0, 0, 0, 0, 0, 0}, false, 0, false, '', start
  local length, windowShape, windowEnd, ending
  for _ = 1, count do
    local cell, kind, flags, shape, cost, a, b, c, d, e
    cell, kind, flags, shape, cost, a, b, c, d, e, pos = struct.unpack('<HBBc2dddddd', blob, pos)
    local at, bucket = 8 * cell, kind == 1
    local f, n = known[at], known[at + 1]
    if not f then
      f, n = 0, 0
      local v = values[2 * cell - 1]
      if values[2 * cell] then
        return nil
      elseif not bucket then
        if b ~= length or c ~= windowShape then -- windows of one limit end at the same time
          length, windowShape, windowEnd = b, c, now - now % b + b
          ending = format('%09.0f%03.0f', (windowEnd - BASE) / 1000000, c)
        end
        if v and sub(v, -12) == ending and windowEnd % 1000000 == 0 then
          f, n = windowEnd, tonumber(sub(v, 1, -13))
        elseif v and (string.find(v, ':', 1, true) or tonumber(sub(v, -3)) ~= c) then
          return nil
        elseif v then
          f, n = tonumber(sub(v, -12, -4)) * 1000000 + BASE, tonumber(sub(v, 1, -13))
        end
      elseif v then
        local stored
        f = tonumber(sub(v, 1, -4)) -- a whole number of microseconds, the usual case
        if f and f > 0 then
          f, stored = f + BASE, sub(v, -3, -2)
        elseif f then
          f, n, stored = tonumber(sub(v, 2, -5)) + BASE, tonumber(sub(v, -2)), sub(v, -4, -3)
        else
          f, n, stored = string.match(v, '^(%d+):(%d+):(%d%d)$')
          f, n = tonumber(f), tonumber(n)
        end
        if stored ~= shape or n >= c then
          return nil
        end
      end
      known[at], known[at + 1], known[at + 2], known[at + 3], known[at + 4] = f, n, f, n, bucket and c or -c
      known[at + 5], known[at + 6], known[at + 7] = 0, 0, shape
    elseif known[at + 4] ~= (bucket and c or -c) then
      return nil
    end
    local fits
    if bucket then -- the cost drips in a + b/c, a full bucket in d + e/c
      if f <= now then
        f, n = now, 0
      end
      f = f + a
      if n < b then
        f, n = f + 1, n + c
      end
      n = n - b
      local late = f - now - d
      if n + e >= c then
        late = late - 1
      end
      fits = late <= 0
    else -- a window of length b and shape c with limit a
      if f <= now then
        f, n = now - now % b + b, 0
      end
      n = n + cost
      fits = n <= a
    end
    verdicts = verdicts .. (fits and '1' or '0')
    local charged = flags % 4 >= 2 -- even if denied; windows only
    if charged and n > COUNT_MOST then
      return nil
    elseif flags >= 32 and size == 0 then -- a group of one take
      if fits or charged then
        known[at], known[at + 1] = f, n
      end
    else
      group, size = group or {}, size + 1
      group[size] = charged and -at or fits and at
      known[at + 5], known[at + 6] = f, n
      veto = veto or not fits and flags % 2 == 0
      if flags >= 32 then
        for j = 1, size do
          at = group[j]
          if at and (at < 0 or not veto) then
            at = math.abs(at)
            known[at], known[at + 1] = known[at + 5], known[at + 6]
          end
        end
        size, veto = 0, false
      end
    end
  end
  for cell = 1, #KEYS / 2 do
    local at = 8 * cell
    local f, n, wasF, wasN, c = known[at], known[at + 1], known[at + 2], known[at + 3], known[at + 4]
    local v, key = values[2 * cell - 1], KEYS[2 * cell - 1]
    values[cell] = v or '' -- moved up: there are no block keys in between
    if f == wasF and n == wasN then -- not charged
    elseif c < 0 then
      if v and f == wasF and n <= 9000000 and n - wasN <= 9000 then
        redis.call('INCRBY', key, format('%d', (n - wasN) * 1000000000000))
      else
        write(key, windowText(f, n, 0, -c), f)
      end
    elseif n ~= 0 or not v or wasN ~= 0 then
      write(key, bucketText(f, n, known[at + 7], 0), f)
    else
      local term = f - f % TERM
      if sub(v, -1) == '1' and wasF > BASE and wasF - wasF % TERM == term then -- so the state is an integer
        redis.call('INCRBY', key, format('%d', (f - wasF) * 1000))
      else
        write(key, bucketText(f, 0, known[at + 7], 1), term + 2 * TERM)
      end
    end
  end
  return verdicts
end

if plain == 1 then
  local verdicts = short()
  if verdicts then
    return sub(blob, 9, 16) .. verdicts .. stamp .. table.concat(values, '.', 1, #KEYS / 2)
  end
end
