-- Runs: one hash each, and the sorted sets they are found by. `reindex` is the only place that
-- moves a run between those sets, whatever changed it.
local NONE = {}
local SHOWN = {
  'body', 'rest', 'status', 'blocked', 'attempt', 'fence', 'holder', 'started', 'stop',
  'available', 'claimed', 'first', 'finished', 'rev', 'id',
}
local INDEXED = {
  'status', 'blocked', 'holder', 'stop', 'member', 'key', 'limit', 'created', 'available',
  'task', 'score', 'first', 'finished',
}
local WORDS = {
  queued = 'SCHEDULED', running = 'RUNNING', succeeded = 'SUCCESS', failed = 'FAILED',
  timeout = 'FAILED', unknown = 'FAILED', canceled = 'CANCELED',
}

local function run_key(id)
  return C .. 'run:' .. id
end

-- For the caller; nil if there is none.
local function shown(id)
  return fields_of(run_key(id), SHOWN)
end

local function state(id)
  local values = fields_of(run_key(id), INDEXED)
  if not values then return nil end
  local found = {}
  for place, name in ipairs(INDEXED) do found[name] = values[place] end
  return found
end

local function active(s)
  return s.status == 'queued' or s.status == 'running'
end

local function claimable(s)
  return s.status == 'queued' and s.blocked == ''
end

-- A member of a queue: 56 characters of sort key, the id, a line feed, what it needs.
local function needs_of(member)
  return string.sub(member, string.find(member, '\n', 57, true) + 1)
end

local function id_of(member)
  return string.sub(member, 57, string.find(member, '\n', 57, true) - 1)
end

local function sooner(x, y)
  local a, b = string.sub(x, 1, 56), string.sub(y, 1, 56)
  if a ~= b then return a < b end
  return less(x, y)
end

local function enqueue(id, s)
  call('ZADD', C .. 'available', s.available, id)
  if tonumber(s.available) <= now then
    call('ZADD', C .. 'ready:' .. needs_of(s.member), 0, s.member)
  else
    call('ZADD', C .. 'delayed', s.available, s.member)
  end
end

local function dequeue(id, s)
  call('ZREM', C .. 'available', id)
  if call('ZREM', C .. 'ready:' .. needs_of(s.member), s.member) == 0 then
    call('ZREM', C .. 'delayed', s.member)
  end
end

local function reindex_key(id, a, b, key, created)
  local was, is = active(a) and a.blocked == '', active(b) and b.blocked == ''
  if was and not is then
    call('ZREM', C .. 'admitted:' .. key, id)
  elseif is and not was then
    call('ZADD', C .. 'admitted:' .. key, created, id)
  end
  was, is = active(a) and a.blocked == '1', active(b) and b.blocked == '1'
  local same = was and is and a.member == b.member
  if was and not same then call('ZREM', C .. 'blocked:' .. key, a.member) end
  -- The largest limit first: whether anybody may go is seen from the first and the last.
  if is and not same then call('ZADD', C .. 'blocked:' .. key, '-' .. b.limit, b.member) end
end

local function reindex_holder(id, a, b, created)
  local was, is = a.holder or '', b.holder or ''
  if was ~= is then
    if was ~= '' then
      call('ZREM', C .. 'held:' .. was, id)
      if call('EXISTS', C .. 'held:' .. was) == 0 then call('SREM', C .. 'holders', was) end
    end
    if is ~= '' then
      call('ZADD', C .. 'held:' .. is, created, id)
      call('SADD', C .. 'holders', is)
    end
  end
  local stopped, stops = a.stop == '1' and was or '', b.stop == '1' and is or ''
  if stopped ~= stops then
    if stopped ~= '' then call('ZREM', C .. 'stops:' .. stopped, id) end
    if stops ~= '' then call('ZADD', C .. 'stops:' .. stops, created, id) end
  end
end

-- A write to an EventNative key. Other programs use these keys too, and Redis does not roll back a
-- failed script: so this must not raise. A key of a wrong type is replaced.
local function view(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) == 'table' and answer.err and string.find(answer.err, 'WRONGTYPE', 1, true) then
    call('DEL', key)
    redis.pcall(command, key, ...)
  end
end

-- The keys of EventNative, literally.
local function reindex_task(task, a, b)
  local queue = P .. 'sync_tasks_priority_queue'
  if a.status == 'queued' and b.status ~= 'queued' then
    view('ZREM', queue, task)
  elseif b.status == 'queued' and a.status ~= 'queued' then
    view('ZADD', queue, b.score, task)
  end
  if b.status then
    view('HSET', P .. 'sync_tasks#' .. task, 'status', WORDS[b.status],
      'started_at', iso(b.first), 'finished_at', iso(b.finished))
  end
end

local function reindex(id, a, b)
  a, b = a or NONE, b or NONE
  local created, key, task = b.created or a.created, b.key or a.key, b.task or a.task
  if a.status ~= b.status then
    if a.status then call('ZREM', C .. 'runs:status:' .. a.status, id) end
    if b.status then call('ZADD', C .. 'runs:status:' .. b.status, created, id) end
  end
  local stays = claimable(a) and claimable(b) and a.member == b.member
  if claimable(a) and not stays then dequeue(id, a) end
  if claimable(b) and not stays then enqueue(id, b) end
  if key ~= '' then reindex_key(id, a, b, key, created) end
  reindex_holder(id, a, b, created)
  local ended, ends = a.finished or '', b.finished or ''
  if ended ~= ends then
    if ends ~= '' then
      call('ZADD', C .. 'ended', ends, id)
    else
      call('ZREM', C .. 'ended', id)
    end
  end
  if task ~= '' then reindex_task(task, a, b) end
end

-- `changes`: names and values in turn; the value @now is the moment of the script.
local function put(id, changes)
  local before, after = state(id), {}
  if not before then return end
  for name, value in pairs(before) do after[name] = value end
  for place = 2, #changes, 2 do
    if changes[place] == '@now' then changes[place] = NOW end
    if after[changes[place - 1]] then after[changes[place - 1]] = changes[place] end
  end
  call('HSET', run_key(id), unpack(changes))
  local rev = call('HINCRBY', run_key(id), 'rev', 1)
  reindex(id, before, after)
  return rev
end

-- The id of the run that has this id or this slot already.
local function existing(id, schedule, slot)
  if call('EXISTS', run_key(id)) == 1 then return id end
  if schedule ~= '' and slot ~= '' then
    return call('ZRANGEBYSCORE', C .. 'slots:' .. schedule, slot, slot, 'LIMIT', 0, 1)[1]
  end
end

-- By what a run is found for ever: facet, score.
local FIXED = {'schedule', 'parent', 'key', 'slot', 'planned', 'created', 'source', 'task', 'pair'}

local function facets(id)
  local values = call('HMGET', run_key(id), unpack(FIXED))
  local f = {}
  for place, name in ipairs(FIXED) do f[name] = values[place] or '' end
  local found = {{'runs', f.created}, {'runs:planned', f.planned}}
  local function by(kind, value, score)
    if value ~= '' then found[#found + 1] = {kind .. value, score} end
  end
  if f.schedule ~= '' then
    by('runs:schedule:', f.schedule, f.created)
    by('runs:planned:schedule:', f.schedule, f.planned)
    if f.slot ~= '' then by('slots:', f.schedule, f.slot) end
  end
  by('runs:parent:', f.parent, f.created)
  by('runs:key:', f.key, f.created)
  by('runs:needs:', f.source, f.created)
  return found, f
end

-- `task`: '' or {EventNative hash as names and values, score in the index}.
local function insert(id, fields, task)
  call('HSET', run_key(id), 'id', id, 'rev', '1', unpack(fields))
  local found, f = facets(id)
  for _, each in ipairs(found) do call('ZADD', C .. each[1], each[2], id) end
  if f.task ~= '' then
    view('HSET', P .. 'sync_tasks#' .. f.task, unpack(task[1]))
    view('ZADD', P .. 'sync_tasks_index:' .. f.pair, task[2], f.task)
  end
  reindex(id, nil, state(id))
end

local function forget(id)
  local found, f = facets(id)
  for _, each in ipairs(found) do call('ZREM', C .. each[1], id) end
  reindex(id, state(id), nil)
  if f.task ~= '' then
    view('ZREM', P .. 'sync_tasks_index:' .. f.pair, f.task)
    view('DEL', P .. 'sync_tasks#' .. f.task, P .. 'sync_tasks#' .. f.task .. ':logs')
  end
  call('DEL', run_key(id), C .. 'logs:' .. id)
  -- `run_checkpoint_names`
  call('HDEL', C .. 'states', 'action:' .. id, 'agent:' .. id, 'agent:' .. id .. ':heard')
end

local function admitted(key)
  return call('ZCARD', C .. 'admitted:' .. key)
end

-- One that waits may go; one that is not there is forgotten.
local function let_go(blocked, member)
  if not put(id_of(member), {'blocked', ''}) then
    call('ZREM', blocked, member)
    return false
  end
  return true
end

-- Lets blocked runs of the key go as far as their limits allow, in the order of the queue.
local function unblock(key)
  local blocked = C .. 'blocked:' .. key
  local first = call('ZRANGE', blocked, 0, 0, 'WITHSCORES')
  local count, any = admitted(key), false
  if not first[1] or count >= -tonumber(first[2]) then return false end
  if first[2] == call('ZRANGE', blocked, -1, -1, 'WITHSCORES')[2] then
    while first[1] and count < -tonumber(first[2]) do
      if let_go(blocked, first[1]) then count, any = count + 1, true end
      first = call('ZRANGE', blocked, 0, 0, 'WITHSCORES')
    end
    return any
  end
  -- Limits of their own: each has to be asked, in turn.
  local waiting, all = {}, call('ZRANGE', blocked, 0, -1, 'WITHSCORES')
  for place = 1, #all, 2 do waiting[#waiting + 1] = {all[place], -tonumber(all[place + 1])} end
  table.sort(waiting, function(x, y) return sooner(x[1], y[1]) end)
  for _, each in ipairs(waiting) do
    if count < each[2] and let_go(blocked, each[1]) then count, any = count + 1, true end
  end
  return any
end

-- `lines`: {list entry, score and beginning of EventNative's entry} each; numbering continues.
local function append_log(id, lines)
  local task = call('HGET', run_key(id), 'task') or ''
  for _, line in ipairs(lines) do
    local number = call('RPUSH', C .. 'logs:' .. id, line[1])
    if task ~= '' then
      view('ZADD', P .. 'sync_tasks#' .. task .. ':logs', line[2],
        line[3] .. ',"number":' .. number .. '}')
    end
  end
end

local function owned(id, fence)
  local values = call('HMGET', run_key(id), 'status', 'fence')
  return values[1] == 'running' and values[2] == fence
end
