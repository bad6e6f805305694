-- Runs. The hash of a run has its state and the key of its definition, which equal runs share. All
-- its values are short, so that Redis packs it; an empty field is not stored. What the last attempt
-- returned is a text of its own (`rest`). The place of a queued run is in the hash `queue`, a
-- claimed run in the set `claims:NODE`. `reindex` is the only place that moves a run between these
-- structures and the sorted sets by which it is listed.
local NONE = {}
local RUN = {
  'def', 'args', 'body', 'slot', 'parent', 'key', 'limit', 'created', 'planned', 'status',
  'blocked', 'attempt', 'fence', 'holder', 'started', 'stop', 'available', 'claimed', 'first',
  'finished', 'rev',
}
local INDEXED = {
  'status', 'blocked', 'holder', 'stop', 'key', 'limit', 'created', 'available', 'task', 'score',
  'first', 'finished',
}
-- EventNative's names of the statuses.
local WORDS = {
  queued = 'SCHEDULED', running = 'RUNNING', succeeded = 'SUCCESS', failed = 'FAILED',
  timeout = 'FAILED', unknown = 'FAILED', canceled = 'CANCELED',
}

local function definition_key(key)
  return C .. 'definition:' .. key
end

-- Stores missing definitions and marks them as used, once a day. ARGV[8]: {key, text} each; without
-- the text if the caller believes that it is stored. If it is not, the caller has to send it.
for _, each in ipairs(ARGV[8] and cjson.decode(ARGV[8]) or NONE) do
  local used = call('ZSCORE', C .. 'definitions', each[1])
  if call('EXISTS', definition_key(each[1])) == 0 then
    if each[2] == '' then return cjson.encode({NOW, 'definitions'}) end
    call('SET', definition_key(each[1]), each[2])
  end
  if not used or tonumber(used) < now - 86400000000 then
    call('ZADD', C .. 'definitions', NOW, each[1])
  end
end

local function run_key(id)
  return C .. 'run:' .. id
end

local function rest_key(id)
  return C .. 'rest:' .. id
end

-- The record for the caller; nil if there is none.
local function shown(id)
  local values = fields_of(run_key(id), RUN)
  if not values then return nil end
  values[#RUN + 1] = call('GET', rest_key(id)) or ''
  values[#RUN + 2] = id
  return values
end

local function state(id)
  local values = fields_of(run_key(id), INDEXED)
  if not values then return nil end
  local s = {member = call('HGET', C .. 'queue', id) or ''}
  for place, name in ipairs(INDEXED) do s[name] = values[place] end
  return s
end

local function active(s)
  return s.status == 'queued' or s.status == 'running'
end

local function claimable(s)
  return s.status == 'queued' and s.blocked == '' and s.member ~= ''
end

-- A member of a queue: 56 digits (rank, available, planned), the id, and after line feeds the
-- requirement and the owner, whom members of earlier versions lack.
local NO_OWNER = string.rep('0', 19)

local function needs_of(member)
  local first = string.find(member, '\n', 57, true)
  local second = string.find(member, '\n', first + 1, true)
  return string.sub(member, first + 1, second and second - 1)
end

local function owner_of(member)
  local first = string.find(member, '\n', 57, true)
  local second = string.find(member, '\n', first + 1, true)
  return second and string.sub(member, second + 1) or NO_OWNER
end

local function id_of(member)
  return string.sub(member, 57, string.find(member, '\n', 57, true) - 1)
end

-- Runs that are due are in the set `turns:REQUIREMENT`, by rank and owner: the owner stands after
-- the rank.
local function turn_of(member)
  return string.sub(member, 1, 20) .. owner_of(member) .. string.sub(member, 21)
end

local function member_of(turn)
  return string.sub(turn, 1, 20) .. string.sub(turn, 40)
end

local function add_turn(member)
  call('ZADD', C .. 'turns:' .. needs_of(member), 0, turn_of(member))
end

local function remove_turn(member)
  return call('ZREM', C .. 'turns:' .. needs_of(member), turn_of(member))
end

local function available_of(member)
  return tonumber(string.sub(member, 21, 38))
end

local function sooner(x, y)
  local a, b = string.sub(x, 1, 56), string.sub(y, 1, 56)
  if a ~= b then return a < b end
  return less(x, y)
end

local function enqueue(id, s)
  call('ZADD', C .. 'available', s.available, id)
  if tonumber(s.available) <= now then
    add_turn(s.member)
  else
    call('ZADD', C .. 'delayed', s.available, s.member)
  end
end

local function dequeue(id, s)
  call('ZREM', C .. 'available', id)
  if remove_turn(s.member) == 0 then call('ZREM', C .. 'delayed', s.member) end
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
  -- The largest limit first: the first and the last one show whether any can be unblocked.
  if is and not same then
    call('ZADD', C .. 'blocked:' .. key, b.limit == '' and '-1' or '-' .. b.limit, b.member)
  end
end

local function reindex_holder(id, a, b, created)
  local was, is = a.holder or '', b.holder or ''
  if was ~= is then
    if was ~= '' then
      call('ZREM', C .. 'claims:' .. was, id)
      if call('EXISTS', C .. 'claims:' .. was) == 0 then call('SREM', C .. 'holders', was) end
    end
    if is ~= '' then
      call('ZADD', C .. 'claims:' .. is, created, id)
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

-- `fields`: names and values in turn; the value @now is the time of the script. Returns them by
-- name.
local function write_run(id, fields)
  local values, set, unset = {}, {}, {}
  for place = 1, #fields, 2 do
    values[fields[place]] = fields[place + 1] == '@now' and NOW or fields[place + 1]
  end
  for name, value in pairs(values) do
    if name == 'rest' then
      if value == '' then call('DEL', rest_key(id)) else call('SET', rest_key(id), value) end
    elseif name == 'member' then
      if value == '' then
        call('HDEL', C .. 'queue', id)
      else
        call('HSET', C .. 'queue', id, value)
      end
    elseif value == '' then
      unset[#unset + 1] = name
    else
      set[#set + 1] = name
      set[#set + 1] = value
    end
  end
  if #set > 0 then call('HSET', run_key(id), unpack(set)) end
  if #unset > 0 then call('HDEL', run_key(id), unpack(unset)) end
  return values
end

local function put(id, changes)
  local before, after = state(id), {}
  if not before then return end
  local written = write_run(id, changes)
  for name, value in pairs(before) do after[name] = written[name] or value end
  call('HINCRBY', run_key(id), 'rev', 1)
  reindex(id, before, after)
  return true
end

-- The id of the run that has this id or this slot already.
local function existing(id, schedule, slot)
  if call('EXISTS', run_key(id)) == 1 then return id end
  if schedule ~= '' and slot ~= '' then
    return call('ZRANGEBYSCORE', C .. 'slots:' .. schedule, slot, slot, 'LIMIT', 0, 1)[1]
  end
end

-- The sorted sets in which a run stays: set, score.
local FIXED = {'schedule', 'parent', 'key', 'slot', 'planned', 'created', 'source', 'task', 'pair'}

local function facets(id)
  local values = call('HMGET', run_key(id), unpack(FIXED))
  local f = {}
  for place, name in ipairs(FIXED) do f[name] = values[place] or '' end
  local sets = {{'runs', f.created}, {'runs:planned', f.planned}}
  local function by(kind, value, score)
    if value ~= '' then sets[#sets + 1] = {kind .. value, score} end
  end
  if f.schedule ~= '' then
    by('runs:schedule:', f.schedule, f.created)
    by('runs:planned:schedule:', f.schedule, f.planned)
    if f.slot ~= '' then by('slots:', f.schedule, f.slot) end
  end
  by('runs:parent:', f.parent, f.created)
  -- Runs with the own key of their schedule are in its set.
  if f.key ~= 'schedule:' .. f.schedule then by('runs:key:', f.key, f.created) end
  by('runs:needs:', f.source, f.created)
  return sets, f
end

-- `task`: '' or {EventNative hash as names and values, score in the index}.
local function insert(id, fields, task)
  write_run(id, fields)
  local sets, f = facets(id)
  for _, each in ipairs(sets) do call('ZADD', C .. each[1], each[2], id) end
  if f.task ~= '' then
    view('HSET', P .. 'sync_tasks#' .. f.task, unpack(task[1]))
    view('ZADD', P .. 'sync_tasks_index:' .. f.pair, task[2], f.task)
  end
  reindex(id, nil, state(id))
end

local function forget(id)
  local sets, f = facets(id)
  for _, each in ipairs(sets) do call('ZREM', C .. each[1], id) end
  reindex(id, state(id), nil)
  if f.task ~= '' then
    view('ZREM', P .. 'sync_tasks_index:' .. f.pair, f.task)
    view('DEL', P .. 'sync_tasks#' .. f.task, P .. 'sync_tasks#' .. f.task .. ':logs')
  end
  call('DEL', run_key(id), rest_key(id), C .. 'logs:' .. id)
  call('HDEL', C .. 'queue', id)
  call('HDEL', C .. 'states', RUN_CHECKPOINTS(id))
end

local function admitted(key)
  return call('ZCARD', C .. 'admitted:' .. key)
end

-- Unblocks one run. The entry of a run that does not exist is removed.
local function unblock_member(blocked, member)
  if not put(id_of(member), {'blocked', ''}) then
    call('ZREM', blocked, member)
    call('HDEL', C .. 'queue', id_of(member))
    return false
  end
  return true
end

-- Unblocks runs of the key as far as their limits allow, in the order of the queue.
local function unblock(key)
  local blocked = C .. 'blocked:' .. key
  local first = call('ZRANGE', blocked, 0, 0, 'WITHSCORES')
  local count, any = admitted(key), false
  if not first[1] or count >= -tonumber(first[2]) then return false end
  if first[2] == call('ZRANGE', blocked, -1, -1, 'WITHSCORES')[2] then
    while first[1] and count < -tonumber(first[2]) do
      if unblock_member(blocked, first[1]) then count, any = count + 1, true end
      first = call('ZRANGE', blocked, 0, 0, 'WITHSCORES')
    end
    return any
  end
  -- Their limits differ.
  local waiting, all = {}, call('ZRANGE', blocked, 0, -1, 'WITHSCORES')
  for place = 1, #all, 2 do waiting[#waiting + 1] = {all[place], -tonumber(all[place + 1])} end
  table.sort(waiting, function(x, y) return sooner(x[1], y[1]) end)
  for _, each in ipairs(waiting) do
    if count < each[2] and unblock_member(blocked, each[1]) then count, any = count + 1, true end
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
