-- Into the queue and out of it.

-- A new run as it has to begin: its flow may be over, its key at its limit (`over`: how the rest
-- of the run reads if its flow has ended).
local function begun(fields, key, limit, parent, over)
  local blocked = ''
  if over ~= '' and parent ~= '' then
    local status = call('HGET', run_key(parent), 'status')
    if status and status ~= 'queued' and status ~= 'running' then
      for _, value in ipairs({'status', 'canceled', 'rest', over, 'blocked', '', 'holder', '',
                              'finished', NOW}) do
        fields[#fields + 1] = value
      end
      return 'over'
    end
  end
  if key ~= '' and admitted(key) >= tonumber(limit) then blocked = '1' end
  fields[#fields + 1] = 'blocked'
  fields[#fields + 1] = blocked
  return blocked == '1' and 'blocked' or 'new'
end

local function head_differs(head)
  if #head == 0 then return false end
  return wrong.head({'head', head[1], head[2]})
end

-- args: runs {id, fields, task, schedule, slot, key of an active run, limit, parent, over},
-- audit {number, hash before; number, hash, text}. The answers: a word, or the record there is.
function verbs.add()
  if head_differs(args[2]) then return {NOW, 'head'} end
  local answers = {}
  for place, run in ipairs(args[1]) do
    local known = existing(run[1], run[4], run[5])
    if known then
      answers[place] = shown(known)
    else
      answers[place] = begun(run[2], run[6], run[7], run[8], run[9])
      insert(run[1], run[2], run[3])
    end
  end
  if #args[2] > 0 then ops.audit({'audit', args[2][3], args[2][4], args[2][5]}) end
  wake()
  return {NOW, answers}
end

-- The oldest active run of a key, by (created, id).
local function oldest_active(key)
  local first = call('ZRANGE', C .. 'admitted:' .. key, 0, 0, 'WITHSCORES')
  local id, created = first[1], tonumber(first[2] or 0)
  for _, member in ipairs(call('ZRANGE', C .. 'blocked:' .. key, 0, -1)) do
    local other = id_of(member)
    local at = tonumber(call('HGET', run_key(other), 'created'))
    if not id or at < created or at == created and less(other, id) then id, created = other, at end
  end
  return id
end

-- R4.20. args: a run as for add (its key in place 6), audit.
function verbs.add_unless_active()
  local run = args[1]
  local known = existing(run[1], run[4], run[5]) or oldest_active(run[6])
  if known then return {NOW, shown(known)} end
  if head_differs(args[2]) then return {NOW, 'head'} end
  insert(run[1], run[2], run[3])
  if #args[2] > 0 then ops.audit({'audit', args[2][3], args[2][4], args[2][5]}) end
  wake()
  return {NOW, 'new'}
end

-- What has become due since: from the delayed to the ready ones of its needs.
local function promote()
  for _ = 1, 40 do
    local due = call('ZRANGEBYSCORE', C .. 'delayed', '-inf', NOW, 'LIMIT', 0, 500)
    for _, member in ipairs(due) do
      call('ZREM', C .. 'delayed', member)
      call('ZADD', C .. 'ready:' .. needs_of(member), 0, member)
    end
    if #due < 500 then return end
  end
end

-- The first `free` of the offered queues together. A clock that was set back may have left one
-- that is not due any more.
local function foremost(offers, free)
  local found, queues = {}, 0
  for _, offer in ipairs(offers) do
    local ready = C .. 'ready:' .. offer
    local from, kept, before = 0, 0, #found
    while kept < free do
      local members = call('ZRANGE', ready, from, from + free - 1)
      for _, member in ipairs(members) do
        local id = id_of(member)
        if tonumber(call('HGET', run_key(id), 'available')) <= now then
          found[#found + 1] = member
          kept = kept + 1
        end
      end
      if #members < free then break end
      from = from + free
    end
    if #found > before then queues = queues + 1 end
  end
  -- One queue is in its order already.
  if queues > 1 then table.sort(found, sooner) end
  return found
end

-- `claimed`, for the first `free` of these members of queues.
local function hand_out(members, node, free)
  local taken = {}
  for place = 1, math.min(#members, free) do
    local id = id_of(members[place])
    local values = call('HMGET', run_key(id), 'attempt', 'fence', 'first')
    put(id, {
      'status', 'running', 'holder', node, 'started', '', 'claimed', NOW,
      'attempt', whole(tonumber(values[1]) + 1), 'fence', whole(tonumber(values[2]) + 1),
      'first', values[3] ~= '' and values[3] or NOW,
    })
    taken[place] = shown(id)
  end
  return taken
end

-- args: node, free, offers.
function verbs.claim()
  local node, free = args[1], tonumber(args[2])
  if free <= 0 or not alive(node) then return {NOW, {}} end
  promote()
  return {NOW, hand_out(foremost(args[3], free), node, free)}
end

-- What firing came to. args: units, node, free, offers. Those of the new runs for which the node
-- has places are its own at once. The answer: as of commit, the runs taken, the other new ones.
function verbs.fire()
  local answers, woken = applied(args[1])
  local node, free, offered = args[2], tonumber(args[3]), {}
  for _, offer in ipairs(args[4]) do offered[offer] = true end
  local members, others, stopped = {}, {}, false
  for place, unit in ipairs(args[1]) do
    for _, op in ipairs(answers[place] == 'done' and unit[2] or NONE) do
      if op[1] == 'insert' then
        local s = state(op[2])
        others[#others + 1] = op[2]
        if claimable(s) and tonumber(s.available) <= now and offered[needs_of(s.member)] then
          members[#members + 1] = s.member
        end
      elseif op[1] == 'put' then
        stopped = true
      end
    end
  end
  local taken = {}
  if free > 0 and #members > 0 and alive(node) then
    table.sort(members, sooner)
    taken = hand_out(members, node, free)
  end
  local rest = {}
  for _, id in ipairs(others) do
    local s = state(id)
    if s.status ~= 'running' then
      rest[#rest + 1] = {id, s.status, s.blocked}
      woken = woken or claimable(s)
    end
  end
  if woken or stopped then wake() end
  return {NOW, answers, taken, rest}
end

function verbs.start()
  if not owned(args[1], args[2]) then return {NOW, ''} end
  put(args[1], {'started', '1'})
  return {NOW, '1'}
end

function verbs.append_logs()
  if not owned(args[1], args[2]) then return {NOW, ''} end
  append_log(args[1], args[3])
  return {NOW, '1'}
end

-- args: ids. The logs of those that have ended.
function verbs.drop_logs()
  for _, id in ipairs(args[1]) do
    local values = call('HMGET', run_key(id), 'status', 'task')
    if values[1] and values[1] ~= 'queued' and values[1] ~= 'running' then
      call('DEL', C .. 'logs:' .. id)
      if values[2] ~= '' then call('DEL', P .. 'sync_tasks#' .. values[2] .. ':logs') end
    end
  end
  return {NOW}
end

function verbs.keep_state()
  if not owned(args[1], args[2]) then return {NOW, ''} end
  call('HSET', C .. 'states', args[3], cjson.encode({args[4], NOW, args[1]}))
  return {NOW, '1'}
end

-- args: limit, microseconds of the reservation. Schedules that another node has just taken
-- are left out; should it die, they are free again soon. The server's own time counts here,
-- whatever clock decides what is due.
function verbs.take_due()
  local limit, t = tonumber(args[1]), call('TIME')
  local real = tonumber(t[1]) * 1000000 + tonumber(t[2])
  local found, from = {}, 0
  while #found < limit do
    local due = call('ZRANGEBYSCORE', C .. 'due', '-inf', NOW, 'LIMIT', from, 500)
    for _, id in ipairs(due) do
      local taken = call('ZSCORE', C .. 'firing', id)
      if #found < limit and not (taken and tonumber(taken) > real) then
        call('ZADD', C .. 'firing', whole(real + tonumber(args[2])), id)
        found[#found + 1] = id
      end
    end
    if #due < 500 then break end
    from = from + 500
  end
  local rows = {}
  for place, id in ipairs(found) do rows[place] = to_fire(id) end
  return {NOW, rows}
end

-- args: before, limit. Not the steps of a flow that goes on.
function verbs.prune()
  local limit, from, old = tonumber(args[2]), 0, {}
  while #old < limit do
    local ids = call('ZRANGEBYSCORE', C .. 'ended', '-inf', '(' .. args[1], 'LIMIT', from, 500)
    for _, id in ipairs(ids) do
      local parent = call('HGET', run_key(id), 'parent')
      local status = parent ~= '' and call('HGET', run_key(parent), 'status')
      if #old < limit and status ~= 'queued' and status ~= 'running' then old[#old + 1] = id end
    end
    if #ids < 500 then break end
    from = from + 500
  end
  for _, id in ipairs(old) do
    local values = call('HMGET', run_key(id), 'schedule', 'slot', 'mark')
    forget(id)
    if values[1] ~= '' and values[2] ~= '' then purged(values[1], values[3]) end
  end
  return {NOW, tostring(#old)}
end

-- Nodes.
function verbs.join()
  local until_ = whole(now + tonumber(args[2]))
  call('DEL', C .. 'node:' .. args[1])
  call('HSET', C .. 'node:' .. args[1], 'body', args[3], 'started', NOW, 'heartbeat', NOW,
    'lease', until_, 'offset', args[4])
  call('ZADD', C .. 'leases', until_, args[1])
  return {NOW, until_}
end

-- args: node, lease, the node's own clock.
function verbs.beat()
  if not alive(args[1]) then return {NOW, ''} end
  local until_ = whole(now + tonumber(args[2]))
  local offset = args[3] == '' and '0' or whole(tonumber(args[3]) - now)
  call('HSET', C .. 'node:' .. args[1], 'heartbeat', NOW, 'lease', until_, 'offset', offset)
  call('ZADD', C .. 'leases', until_, args[1])
  return {NOW, '1', call('ZRANGE', C .. 'stops:' .. args[1], 0, -1)}
end

-- Requests under an idempotency key. args: name, fingerprint as it is kept, microseconds.
local function remembered(name)
  local values = call('HMGET', C .. 'request:' .. name, 'until', 'answer')
  if values[1] and tonumber(values[1]) > now then return values[2] end
end

function verbs.remember()
  local known = remembered(args[1])
  if known then return {NOW, known} end
  local key = C .. 'request:' .. args[1]
  call('HSET', key, 'until', whole(now + tonumber(args[3])), 'answer', args[2])
  call('PEXPIRE', key, whole(math.ceil(tonumber(args[3]) / 1000) + 1000))
  return {NOW, ''}
end

function verbs.answer()
  local key = C .. 'request:' .. args[1]
  if call('EXISTS', key) == 1 then call('HSET', key, 'answer', args[2]) end
  return {NOW}
end

function verbs.forget_request()
  call('DEL', C .. 'request:' .. args[1])
  return {NOW}
end

function verbs.epoch()
  return {NOW, tostring(call('HINCRBY', C .. 'store', 'epoch', 1))}
end

-- Moving in: items as they are. What exists already stays and is not counted.
local adopt = {}

function adopt.schedule(item)
  if call('EXISTS', schedule_key(item[2])) == 1 then return false end
  put_schedule(item[2], item[3])
  return true
end

function adopt.run(item)
  if existing(item[2], item[5], item[6]) then return false end
  insert(item[2], item[3], item[4])
  return true
end

-- A log may come before its run, or without one.
function adopt.log(item)
  if call('EXISTS', C .. 'logs:' .. item[2]) == 1 then return false end
  append_log(item[2], item[3])
  return true
end

function adopt.audit(item)
  local last = tonumber(call('HGET', C .. 'audit:head', 'number') or '0')
  if last >= tonumber(item[2]) then return false end
  ops.audit(item)
  return true
end

function adopt.value(item)
  return call('HSETNX', C .. item[2], item[3], item[4]) == 1
end

function verbs.load()
  local count = 0
  for _, item in ipairs(args[1]) do
    if adopt[item[1]](item) then count = count + 1 end
  end
  wake()
  return {NOW, tostring(count)}
end
