-- Optimistic transactions: a unit is applied if everything that its caller read is unchanged. Units
-- are independent: one that has to be tried again does not delay the others.
local ops = {}

function ops.put(op) put(op[2], op[3]) end

function ops.insert(op) insert(op[2], op[3], op[4]) end

-- op[7] to op[9]: deliveries if it is new (`post`).
function ops.insert_new(op)
  if existing(op[2], op[5], op[6]) then return end
  insert(op[2], op[3], op[4])
  return post(op[5], op[7], op[8], op[9])
end

-- Unblocks runs after a run of their concurrency key has ended.
function ops.unblock(op)
  local key = call('HGET', run_key(op[2]), 'key')
  return key and key ~= '' and unblock(key)
end

function ops.post(op) return post(op[2], op[3], op[4], op[5]) end

function ops.delivery(op) put_delivery(op[2], op[3]) end

function ops.inbox(op) put_inbox(op[2], op[3]) end

function ops.inbox_new(op)
  if call('EXISTS', inbox_key(op[2])) == 0 then put_inbox(op[2], op[3]) end
end

function ops.summary(op) summarize(op[2], op[3], op[4], op[5]) end

function ops.log(op) append_log(op[2], op[3]) end

function ops.schedule(op) put_schedule(op[2], op[3], op[4]) end

function ops.cursor(op)
  move_cursor(op[2], op[3])
  call('ZREM', C .. 'firing', op[2])
end

-- op: node, '1' if it leaves now; else its lease has ended.
function ops.drop_node(op)
  local known = call('HMGET', C .. 'node:' .. op[2], 'lease', 'version')
  if known[1] then
    local at = op[3] == '1' and NOW or known[1]
    call('ZADD', C .. 'marks', at, cjson.encode({at, op[2], '', known[2] or ''}))
  end
  call('ZREM', C .. 'leases', op[2])
  call('DEL', C .. 'node:' .. op[2])
end

function ops.forget_node(op)
  if not alive(op[2]) and call('EXISTS', C .. 'claims:' .. op[2]) == 0 then ops.drop_node(op) end
end

function ops.drain_node(op)
  local key = C .. 'node:' .. op[2]
  if call('EXISTS', key) == 1 then call('HSET', key, 'drain', op[3]) end
end

-- A claimed run that does not exist.
function ops.vanished(op)
  for _, node in ipairs(call('SMEMBERS', C .. 'holders')) do
    call('ZREM', C .. 'claims:' .. node, op[2])
    call('ZREM', C .. 'stops:' .. node, op[2])
    if call('EXISTS', C .. 'claims:' .. node) == 0 then call('SREM', C .. 'holders', node) end
  end
end

function ops.set(op) call('HSET', C .. op[2], op[3], op[4]) end

function ops.unset(op) call('HDEL', C .. op[2], op[3]) end

function ops.audit(op) append_audit(op[2], op[3], op[4]) end

function ops.trim_audit(op) call('ZREMRANGEBYSCORE', C .. 'audit', '-inf', op[2]) end

-- Why a unit cannot happen; nil if it can.
local wrong = {}

function wrong.run(e)
  if (call('HGET', run_key(e[2]), 'rev') or '') ~= e[3] then return 'changed' end
end

function wrong.claim(e)
  if not owned(e[2], e[3]) or call('HEXISTS', run_key(e[2]), 'stop') == 1 then return 'changed' end
end

function wrong.schedule(e)
  local values = call('HMGET', cursor_key(e[2]), 'rev', 'summary_rev')
  if (values[1] or '') ~= e[3] or e[4] ~= '' and values[2] ~= e[4] then return 'changed' end
end

function wrong.absent(e)
  if existing(e[2], e[3], e[4]) then return 'taken' end
end

function wrong.admitted(e)
  if table.concat(call('ZRANGE', C .. 'admitted:' .. e[2], 0, -1), '\n') ~= e[3] then
    return 'changed'
  end
end

function wrong.alive(e)
  if not alive(e[2]) then return 'dead' end
end

function wrong.gone(e)
  if alive(e[2]) then return 'alive' end
end

function wrong.value(e)
  if (call('HGET', C .. e[2], e[3]) or '') ~= e[4] then return 'changed' end
end

function wrong.delivery(e)
  if (call('HGET', delivery_key(e[2]), 'rev') or '') ~= e[3] then return 'changed' end
end

function wrong.inbox(e)
  if (call('HGET', inbox_key(e[2]), 'rev') or '') ~= e[3] then return 'changed' end
end

-- How many are in all of these sets; counted up to the limit, which is not 0.
local function in_all(sets, limit)
  local asked = {#sets}
  for _, set in ipairs(sets) do asked[#asked + 1] = C .. set end
  asked[#asked + 1] = 'LIMIT'
  asked[#asked + 1] = limit
  return call('ZINTERCARD', unpack(asked))
end

-- e: number of the quota, limit, '1' if only active schedules count, sets whose intersection is
-- counted.
function wrong.quota(e)
  local limit = tonumber(e[3])
  local reached = limit <= 0
  if not reached and e[4] == '1' then
    -- No schedule is in both: one that is due is not paused.
    local sets = {unpack(e, 5)}
    sets[#sets + 1] = 'due'
    local count = in_all(sets, limit)
    sets[#sets] = 'schedules:snoozed'
    reached = count + in_all(sets, limit) >= limit
  elseif not reached then
    reached = in_all({unpack(e, 5)}, limit) >= limit
  end
  if reached then return 'quota:' .. e[2] end
end

function wrong.head(e)
  if not follows(e[2], e[3]) then return 'head' end
end

local function objection(unit, spoiled)
  for _, e in ipairs(unit[1]) do
    -- Another unit of this commit has changed the admitted runs of this key, as the caller expects;
    -- unless that unit was rejected.
    local own = e[1] == 'admitted' and spoiled[e[2]]
    if own == 'failed' then return 'changed' end
    local why = not own and wrong[e[1]](e)
    if why then return why end
  end
end

-- Returns `done` or the conflict of each unit, and whether others have to be woken.
local function applied(units)
  local answers, spoiled, woken = {}, {}, false
  for place, unit in ipairs(units) do
    local why = objection(unit, spoiled)
    for _, e in ipairs(unit[1]) do
      if e[1] == 'admitted' and spoiled[e[2]] ~= 'failed' then
        spoiled[e[2]] = why and 'failed' or 'done'
      end
    end
    answers[place] = why or 'done'
    if not why then
      for _, op in ipairs(unit[2]) do
        if ops[op[1]](op) then woken = true end
      end
    end
  end
  return answers, woken
end

-- args: units {expectations, ops}, '1' to wake.
function verbs.commit()
  local answers, woken = applied(args[1])
  woken = woken or args[2] == '1'
  if woken then wake() end
  return {NOW, answers, woken and '1' or ''}
end
