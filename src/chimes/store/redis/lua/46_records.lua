-- Retention, nodes, idempotency records, import.
-- args: ids. The logs of those that have ended.
function verbs.drop_logs()
  for _, id in ipairs(args[1]) do
    local values = call('HMGET', run_key(id), 'status', 'task')
    if values[1] and values[1] ~= 'queued' and values[1] ~= 'running' then
      call('DEL', C .. 'logs:' .. id)
      if values[2] then view('DEL', P .. 'sync_tasks#' .. values[2] .. ':logs') end
    end
  end
  return {NOW}
end

function verbs.keep_state()
  if not owned(args[1], args[2]) then return {NOW, ''} end
  call('HSET', C .. 'states', args[3], cjson.encode({args[4], NOW, args[1]}))
  return {NOW, '1'}
end

-- Steps of a flow that has not ended are not deleted.
local function spared(id)
  local parent = call('HGET', run_key(id), 'parent') or ''
  local status = parent ~= '' and call('HGET', run_key(parent), 'status')
  return status == 'queued' or status == 'running'
end

local function forget_all(old)
  for _, id in ipairs(old) do
    local values = fields_of(run_key(id), {'created', 'schedule', 'slot', 'mark'})
    if values then
      forget(id)
      if values[2] ~= '' and values[3] ~= '' then
        purged(values[2], values[4] ~= '' and values[4] or values[3])
      end
    else
      call('ZREM', C .. 'ended', id)
    end
  end
end

-- args: before, limit.
function verbs.prune()
  local limit, from, old = tonumber(args[2]), 0, {}
  while #old < limit do
    local ids = call('ZRANGEBYSCORE', C .. 'ended', '-inf', '(' .. args[1], 'LIMIT', from, 500)
    for _, id in ipairs(ids) do
      if #old < limit and not spared(id) then old[#old + 1] = id end
    end
    if #ids < 500 then break end
    from = from + 500
  end
  forget_all(old)
  return {NOW, tostring(#old)}
end

-- args: ids.
function verbs.forget_runs()
  local old, seen = {}, {}
  for _, id in ipairs(args[1]) do
    local status = call('HGET', run_key(id), 'status')
    local ended = status and status ~= 'queued' and status ~= 'running'
    if ended and not seen[id] and not spared(id) then old[#old + 1] = id end
    seen[id] = true
  end
  forget_all(old)
  return {NOW, tostring(#old)}
end

-- args: before, limit. Deleted schedules without runs; those with the id of a declared one stay
-- (`is_purgeable`).
function verbs.purge_schedules()
  local set, limit, from, old = C .. 'schedules:deleted', tonumber(args[2]), 0, {}
  while #old < limit do
    local ids = call('ZRANGEBYSCORE', set, '-inf', '(' .. args[1], 'LIMIT', from, 500)
    for _, id in ipairs(ids) do
      local purged = call('HGET', cursor_key(id), 'purged') or ''
      if #old < limit and call('EXISTS', C .. 'runs:schedule:' .. id) == 0
        and (purged == '' or tonumber(purged) < tonumber(args[1]))
        and not string.find(id, '^........%-....%-5...%-....%-............$') then
        old[#old + 1] = id
      end
    end
    if #ids < 500 then break end
    from = from + 500
  end
  for _, id in ipairs(old) do
    forget_schedule(id)
    call('HDEL', C .. 'states', SCHEDULE_CHECKPOINTS(id))
  end
  return {NOW, tostring(#old)}
end

-- args: definitions, {key, mark of use as it was read} each. Definitions that were used meanwhile
-- have another mark and stay.
function verbs.drop_definitions()
  local count = 0
  for _, each in ipairs(args[1]) do
    local used = call('ZSCORE', C .. 'definitions', each[1])
    if used and whole(tonumber(used)) == each[2] then
      call('ZREM', C .. 'definitions', each[1])
      call('DEL', definition_key(each[1]))
      count = count + 1
    end
  end
  return {NOW, tostring(count)}
end

-- Nodes. args: node, lease, body, offset, whether a new one is to drain, facts, version,
-- microseconds for which marks are kept.
function verbs.join()
  local key = C .. 'node:' .. args[1]
  local until_ = whole(now + tonumber(args[2]))
  local before = call('HMGET', key, 'started', 'drain', 'facts')
  local since, drain, facts = before[1] or NOW, args[5], args[6]
  if before[1] then
    drain, facts = before[2] or '', before[3] or ''
  else
    call('ZREMRANGEBYSCORE', C .. 'marks', '-inf', '(' .. whole(now - tonumber(args[8])))
    call('ZADD', C .. 'marks', NOW, cjson.encode({NOW, args[1], '1', args[7]}))
  end
  call('DEL', key)
  call('HSET', key, 'body', args[3], 'started', since, 'heartbeat', NOW, 'lease', until_,
    'offset', args[4], 'drain', drain, 'facts', facts, 'version', args[7])
  call('ZADD', C .. 'leases', until_, args[1])
  return {NOW, until_, since, drain, facts}
end

-- args: node, lease, the node's own clock, facts.
function verbs.beat()
  if not alive(args[1]) then return {NOW, ''} end
  local until_ = whole(now + tonumber(args[2]))
  local offset = args[3] == '' and '0' or whole(tonumber(args[3]) - now)
  local key = C .. 'node:' .. args[1]
  call('HSET', key, 'heartbeat', NOW, 'lease', until_, 'offset', offset, 'facts', args[4])
  call('ZADD', C .. 'leases', until_, args[1])
  local stops = call('ZRANGE', C .. 'stops:' .. args[1], 0, -1)
  return {NOW, '1', stops, call('HGET', key, 'drain') or ''}
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

-- Deletes some of what the store has, except the checkpoint. args: pattern of its keys, cursor of
-- SCAN, checkpoint. The answer: the next cursor, '0' at the
-- end, 'more' to come again with the same one. Nodes that have seen a higher epoch
-- drop their claims.
function verbs.clear()
  local ids = call('ZRANGE', C .. 'runs', 0, 499)
  if #ids > 0 then
    for _, id in ipairs(ids) do forget(id) end
    return {NOW, 'more'}
  end
  local kept = call('HGET', C .. 'states', args[3])
  local found = call('SCAN', args[2], 'MATCH', args[1], 'COUNT', 1000)
  for _, key in ipairs(found[2]) do
    if key ~= C .. 'store' and key ~= C .. 'states' then call('UNLINK', key) end
  end
  call('UNLINK', C .. 'states')
  if kept then call('HSET', C .. 'states', args[3], kept) end
  call('HSET', C .. 'store', 'epoch', '0')
  return {NOW, found[1]}
end

-- Import. What exists already stays and is not counted.
local adopt = {}

function adopt.schedule(item)
  if call('EXISTS', schedule_key(item[2])) == 1 then return false end
  put_schedule(item[2], item[3], item[4])
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
  append_audit(item[2], item[3], item[4])
  return true
end

function adopt.delivery(item)
  if call('EXISTS', delivery_key(item[2])) == 1 then return false end
  put_delivery(item[2], item[3])
  return true
end

function adopt.inbox(item)
  if call('EXISTS', inbox_key(item[2])) == 1 then return false end
  put_inbox(item[2], item[3])
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

local seal = {}

function seal.schedule(id, before, after, revision)
  if call('HGET', schedule_key(id), 'body') ~= before then return false end
  call('HSET', schedule_key(id), 'body', after)
  call('HSET', cursor_key(id), 'revision', revision)
  return true
end

function seal.run(id, before, after)
  return call('HGET', run_key(id), 'args') == before and call('HSET', run_key(id), 'args', after)
end

function seal.definition(id, before, after)
  return call('GET', definition_key(id)) == before and call('SET', definition_key(id), after)
end

function seal.delivery(id, before, after)
  return call('HGET', delivery_key(id), 'body') == before
    and call('HSET', delivery_key(id), 'body', after)
end

function seal.state(name, before, after)
  return call('HGET', C .. 'states', name) == before and call('HSET', C .. 'states', name, after)
end

-- Replaces texts that have not changed meanwhile. args: kind, id, text before and after, digest of
-- the new text, each.
function verbs.reseal()
  local count = 0
  for _, each in ipairs(args[1]) do
    if seal[each[1]](each[2], each[3], each[4], each[5]) then count = count + 1 end
  end
  return {NOW, tostring(count)}
end
