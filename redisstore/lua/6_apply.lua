
-- Calls, as in internal/table: takes are decided in order, then charged, all or none of a group.

local cells, written, remembered, ids = {}, {}, {}, {}
local SHADOW, CHARGE, QUEUE, FIRST_HIT, CALENDAR, ENDS, DRY, SETTLES = 1, 2, 4, 8, 16, 32, 64, 128

local function cellOf(op)
  local cell = cells[op.number]
  if not cell then
    local v = values[2 * op.number - 1]
    cell = {key = KEYS[2 * op.number - 1], blocked = tonumber(values[2 * op.number] or 0), raw = v, kind = op.kind}
    cell.first = op
    if op.kind < 6 then
      cell.s = v and kinds[op.kind].load(v) or {f = 0}
      written[#written + 1] = cell
    end
    cells[op.number] = cell
  end
  return cell
end

local function has(flags, flag)
  return flags % (2 * flag) >= flag
end

-- readPlain reads the shorter record of a fast take.
local function readPlain(pos)
  local op = {id = 0, min = 0, wait = 0, at = 0, time = 0}
  local flags, shape, a, b, c, d, e
  op.number, op.kind, flags, shape, op.cost, a, b, c, d, e, pos = struct.unpack('<HBBc2dddddd', blob, pos)
  op.shadow, op.charge, op.ends = has(flags, SHADOW), has(flags, CHARGE), has(flags, ENDS)
  op.shape = op.kind == 1 and tonumber(shape) or c
  if op.kind == 1 then
    op.costQ, op.costR, op.den, op.fillQ, op.fillR, op.burst, op.keep = a, b, c, d, e, 2 ^ 52, 0
  else
    op.count, op.length, op.over = a, b, 0
  end
  return op, pos
end

local function readOp(pos)
  local op = {struct.unpack('<HHBBddddddddddddddddddB', blob, pos)}
  op.number, op.id, op.kind = op[1], op[2], op[3]
  op.cost, op.min, op.wait, op.at, op.time, op.shape = op[5], op[6], op[7], op[8], op[22], op[23]
  op.shadow, op.charge, op.queue = has(op[4], SHADOW), has(op[4], CHARGE), has(op[4], QUEUE)
  op.firstHit, op.calendar, op.ends = has(op[4], FIRST_HIT), has(op[4], CALENDAR), has(op[4], ENDS)
  op.dry, op.settles = has(op[4], DRY), has(op[4], SETTLES)
  kinds[op.kind].params(op)
  return op, op[24]
end

-- isChanged reports whether a cell's state must be converted with limit parameters that the call does not contain.
local function isChanged(op, when)
  local s = op.cell.s
  return s and s.f > when and s.shape ~= op.shape and op.kind ~= 3 and not convert
end

-- readOps reads the records. It returns the ops, the end position, and the cells and shapes of states whose limit
-- parameters are missing. It returns nothing if the calendar windows are not those around now.
local function readOps()
  local ops, pos, changed = {}, start, {}
  for i = 1, count do
    local op
    if plain % 2 == 1 then
      op, pos = readPlain(pos)
    else
      op, pos = readOp(pos)
    end
    local when = op.time > 0 and op.time or now -- tests set a time per group
    if op.calendar and (when < op.first or when >= op.final) then
      return nil
    end
    op.cell = cellOf(op)
    ops[i] = op
    if isChanged(op, when) then
      changed[#changed + 1], changed[#changed + 2] = op.number, op.cell.s.shape
    end
  end
  return ops, pos, changed
end

-- adopted returns the state converted to the limit at hand.
local function adopted(op, s)
  if s.f > now and s.shape ~= op.shape then
    return (op.kind == 3 and kinds[3].adopt or convert[op.kind])(op, s)
  end
  return s
end

-- attempt decides a cost, or a part of it of at least least, and charges it unless dry is set.
local function attempt(op, cost, least, dry)
  local kind, cell = kinds[op.kind], op.cell
  local s = adopted(op, cell.s)
  if cost > 0 then
    s = begun(op, s)
  end
  if cell.blocked > now then
    if not dry then
      cell.s = s
    end
    return {ok = false, granted = 0, at = now}
  elseif cost == 0 then
    return {ok = kind.take(op, s, 1), granted = 0, at = now}
  end
  local granted = cost
  local ok, nextState, at, reset = kind.take(op, s, cost)
  if not ok and least > 0 then
    granted = math.max(kind.room(op, s, cost), least)
    ok, nextState, at, reset = kind.take(op, s, granted)
  end
  if not dry then
    if ok then
      nextState = marked(op, s, nextState, granted, at)
    elseif op.charge then
      nextState = kind.charge(op, s, cost)
      if s.marks then
        nextState = withMarks(nextState, seen(op, s))
      end
    end
    cell.s = nextState or s
  end
  if ok then
    return {ok = true, granted = granted, at = at, reset = reset}
  end
  return {ok = false, granted = 0, at = now}
end

-- attemptLog is attempt for logs. The caller cannot compute its results, because it does not receive all entries.
local function attemptLog(op, l, cost, least, dry)
  if cost == 0 then
    return logPeek(op, l)
  end
  local a, asked = logTry(op, l, cost), cost
  if not a.ok and least > 0 then
    asked = math.max(math.min(a.remaining, cost), least)
    a = logTry(op, l, asked)
  end
  if dry then
    return a
  elseif a.ok then
    a.at = l.push(l, now, asked)
    a.reset = l.f - now
  elseif op.charge then
    chargeLog(op, l, cost)
    logLook(op, l, a)
    if not a.never then
      a.retry = logTry(op, l, asked).retry
    end
  else
    l.adopt(l)
  end
  return a
end

-- open reads the stored log or permits.
local function open(op)
  if op.kind == 7 then
    return slots.open(op, op.cell)
  end
  return openLog(op, op.cell)
end

local function take(op, cost, least, dry)
  if op.kind < 6 then
    return attempt(op, cost, least, dry)
  end
  local l, blocked = open(op), op.cell.blocked
  if blocked <= now then
    return attemptLog(op, l, cost, least, dry)
  end
  if not dry then
    l.adopt(l)
  end
  local free, idle = attemptLog(op, l, cost, least, true), logPeek(op, l)
  local a = {ok = false, never = free.never, granted = 0, remaining = 0, at = now, retry = 0}
  a.reset = math.max(blocked - now, idle.reset)
  if not a.never then
    a.retry = math.max(blocked - now, free.retry)
  end
  return a
end

local DEDUPE = 60 * 1000000

-- known reads the record of an idempotency ID.
local function known(index)
  local id = ids[index]
  if id == nil then
    id = false
    if values[index] then
      local till, granted, denied = string.match(values[index], '^(%d+):(-?%d+):(%d)$')
      id = {till = tonumber(till), granted = tonumber(granted), denied = denied == '1'}
    end
    ids[index] = id
  end
  return id and id.till > now and id
end

-- replay returns the earlier decision for a take whose idempotency ID was charged before.
local function replay(op)
  local id = known(op.id)
  if not id then
    return nil
  end
  local a = {}
  if op.kind >= 6 then
    a = take(op, 0, 0, true)
  end
  a.ok, a.never, a.retry, a.granted, a.at = not id.denied, false, 0, id.granted, id.till - DEDUPE
  if op.kind >= 6 and not a.ok then
    local again = take(op, op.cost, op.min, true)
    a.never = again.never
    if not a.never then
      a.retry = math.max(id.till - now, again.retry)
    end
  end
  return a
end

-- decide decides a take without changing its state. Costs of earlier takes of the group on the same cell are added to
-- its cost.
local function decide(group, i)
  local op = group[i]
  if op.id > 0 then
    op.answer = replay(op)
    if op.answer then
      op.replayed = true
      return
    end
  end
  if op.at ~= 0 then
    op.answer = {ok = true, granted = 0, at = op.at}
    return
  end
  local pending, behind = 0, 0
  for j = 1, i - 1 do
    local other = group[j]
    if other.cell == op.cell and other.answer.ok and not other.replayed then
      if op.id > 0 and op.id == other.id then
        op.answer, op.replayed = other.answer, true
        return
      elseif other.at ~= 0 then
        pending = pending + math.max(0, other.cost)
      elseif other.cost > 0 then
        pending, behind = pending + other.answer.granted, other.answer.reset
      end
    end
  end
  local cost, least = op.cost, op.min
  if cost > 0 then
    cost = cost + pending
  end
  if least > 0 then
    least = least + pending
  end
  op.answer = take(op, cost, least, true)
  if op.answer.ok and cost > 0 then
    op.answer.granted = op.answer.granted - pending
    if op.queue and op.wait > 0 and behind > op.wait then
      op.answer = {ok = false, granted = 0, at = now}
    end
  end
end

local function settle(op)
  local at = math.max(now - FURTHEST, math.min(op.at, now + FURTHEST))
  local a = {ok = true, granted = 0, at = op.at, retry = 0}
  if op.kind == 7 then
    return slots.adjust(op, slots.open(op, op.cell), at, a)
  elseif op.kind == 6 then
    local l = openLog(op, op.cell)
    a.granted = adjustLog(op, l, at, op.cost)
    logLook(op, l, a)
  else
    local s = adopted(op, op.cell.s)
    if op.cost ~= 0 or op.kind < 3 then -- these may have a mark
      s, a.granted = kinds[op.kind].adjust(op, s, at, op.cost)
    end
    op.cell.s = s
  end
  return a
end

-- adopt converts the state of a take that is not charged, because the decision's RetryAfter is valid for the limit at
-- hand only. For the same reason it starts a new bucket for a key without one.
local function adopt(op)
  if op.dry then
    return
  end
  if op.kind >= 6 then
    local l = open(op)
    l.adopt(l)
  else
    op.cell.s = adopted(op, op.cell.s)
    if op.at == 0 and op.cost > 0 then
      op.cell.s = begun(op, op.cell.s)
    end
  end
end

-- commit applies the decision to the state.
local function commit(op, veto)
  local a = op.answer
  local peeks = op.cost == 0 and (op.dry or not (op.settles and op.at ~= 0))
  if op.replayed or peeks or not op.charge and not a.ok then
    return adopt(op)
  elseif veto and not op.charge then
    adopt(op)
    if op.kind >= 6 and op.at == 0 then
      op.answer = take(op, 0, 0, true)
      op.answer.ok, op.answer.retry, op.answer.at = true, 0, a.at
    end
    return
  elseif op.at ~= 0 then
    a = settle(op)
  else
    a = take(op, op.cost, op.min, false)
  end
  op.answer = a
  if op.id > 0 and (a.ok or op.cell.blocked <= now) then
    local id = {till = math.max(a.at, now) + DEDUPE, granted = a.granted, denied = not a.ok}
    ids[op.id] = id
    remembered[#remembered + 1] = {KEYS[op.id], id}
  end
end

local ops, pos, changed = readOps()
if not ops then
  return {nonce, now, 'stale'}
elseif #changed > 0 then
  return {nonce, now, 'changed', changed}
elseif convert then
  pos = convert.read(ops, pos)
end
local server, restored
if plain % 4 >= 2 then
  -- restore continues a cell from the caller's hint if that is later than the stored state.
  local function restore(number, text)
    local cell, real = cells[number], now
    local op, h = cell.first, kinds[cell.kind].load(text)
    now = op.time > 0 and op.time or now
    local s = h.f > now and regain[cell.kind](op, adopted(op, cell.s), adopted(op, h))
    now = real
    if not s then
      return 0
    end
    cell.s, values[2 * number - 1] = s, kinds[cell.kind].save(s) -- the caller must replay from this state
    return 1
  end

  local info = redis.pcall('INFO', 'server') -- the ACL may not permit INFO
  server, restored = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or '', 0
  local hints, number, from, text
  hints, pos = struct.unpack('<H', blob, pos)
  for _ = 1, hints do
    number, from, text, pos = struct.unpack('<HBc0Hc0', blob, pos)
    if server ~= '' and from ~= server then -- on its own server the state may have been reset or refunded since
      restored = restored + restore(number, text)
    end
  end
end
local verdicts, logs, group = {}, {}, {}
for _, op in ipairs(ops) do
  group[#group + 1] = op
  if op.ends then
    if op.time > 0 then
      now = op.time
    end
    local veto = false
    for j, member in ipairs(group) do
      decide(group, j)
      verdicts[#verdicts + 1] = member.answer.ok and '1' or '0'
      veto = veto or not member.answer.ok and not member.shadow and member.cost ~= 0
    end
    for _, member in ipairs(group) do
      commit(member, veto)
    end
    for _, member in ipairs(group) do
      local a = member.answer
      if member.kind >= 6 then
        local ok, never = a.ok and 1 or 0, a.never and 1 or 0
        for _, n in ipairs({ok, never, a.granted, a.remaining or 0, a.retry or 0, a.reset or 0, a.at}) do
          logs[#logs + 1] = n
        end
      end
    end
    group = {}
  end
end
for _, cell in ipairs(written) do
  if cell.s.f > 0 then
    local text = kinds[cell.kind].save(cell.s)
    if text ~= cell.raw then
      write(cell.key, text, cell.s.f)
    end
  end
end
for _, entry in ipairs(remembered) do
  local id = entry[2]
  write(entry[1], format('%.0f:%.0f:%d', id.till, id.granted, id.denied and 1 or 0), id.till)
end
for _, cell in ipairs(written) do -- last, because a server out of memory would execute only this
  if cell.s.f == 0 and cell.raw then
    redis.call('DEL', cell.key)
  end
end
return {nonce, now, table.concat(verdicts), values, logs, server, restored}
