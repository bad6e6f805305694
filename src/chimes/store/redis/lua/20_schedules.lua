-- Schedules: one hash each, and the sets they are found by.
local SCHEDULE = {
  'body', 'next_slot', 'next_run', 'last_slot', 'last_enqueued', 'last_run', 'last_status',
  'last_error', 'last_success', 'fired', 'purged', 'rev', 'summary_rev', 'id',
}
local LISTED = {
  'name', 'owner', 'created', 'updated', 'enabled', 'deleted', 'next_run', 'namespace',
  'snoozed',
}

local function shown_schedule(id)
  return fields_of(schedule_key(id), SCHEDULE)
end

local function listed(id)
  local values = call('HMGET', schedule_key(id), unpack(LISTED))
  local found = {}
  for place, name in ipairs(LISTED) do
    found[name] = values[place] or (values[3] and '' or nil)
  end
  return found
end

-- set, member, score: where a schedule with these fields stands. Score '' is an unordered set.
local function stands(id, s)
  local found = {}
  local function at(set, member, score) found[set .. '\n' .. member] = {set, member, score} end
  if not s.created then return found end
  if s.deleted ~= '' then
    at('schedules:deleted', id, s.deleted)
    return found
  end
  at('schedules', id, s.created)
  at('schedules:updated', id, s.updated)
  at('schedules:owner:' .. s.owner, id, s.created)
  at('schedules:namespace:' .. s.namespace, id, s.created)
  at('schedules:name', s.name .. '\0' .. id, '0')
  if s.next_run ~= '' then
    at('schedules:next', id, s.next_run)
    if s.enabled == '1' then at('due', id, s.next_run) end
  else
    at('schedules:idle', id, '0')
  end
  if s.enabled == '1' then at('schedules:enabled', id, '') end
  -- A pause that ends by itself.
  if s.snoozed ~= '' then at('schedules:snoozed', id, s.snoozed) end
  return found
end

local function put_schedule(id, fields)
  local before = stands(id, listed(id))
  call('HSET', schedule_key(id), 'id', id, unpack(fields))
  call('HINCRBY', schedule_key(id), 'rev', 1)
  call('HSETNX', schedule_key(id), 'summary_rev', '0')
  local s = listed(id)
  call('ZADD', C .. 'schedules:ever', s.created, id)
  move(before, stands(id, s))
end

-- `put_schedule` where nothing changes that a schedule is found by, but for when it is due.
local function move_cursor(id, fields)
  local key = schedule_key(id)
  call('HSET', key, unpack(fields))
  call('HINCRBY', key, 'rev', 1)
  local values = call('HMGET', key, 'next_run', 'enabled', 'deleted')
  if values[3] ~= '' then return end
  if values[1] == '' then
    call('ZREM', C .. 'schedules:next', id)
    call('ZREM', C .. 'due', id)
    call('ZADD', C .. 'schedules:idle', 0, id)
  else
    call('ZADD', C .. 'schedules:next', values[1], id)
    call('ZREM', C .. 'schedules:idle', id)
    if values[2] == '1' then call('ZADD', C .. 'due', values[1], id) end
  end
end

-- What a schedule tells of its latest run (`summarized`), once that run has ended.
local function summarize(id, run, status, error)
  local key = schedule_key(id)
  local values = call('HMGET', key, 'last_run', 'last_success')
  if not values[1] then return end
  local last_run, success = values[1], values[2]
  local times = call('HMGET', run_key(run), 'first', 'finished')
  local first, finished = times[1], times[2]
  if status == 'succeeded' and finished ~= '' then
    if success == '' or tonumber(finished) > tonumber(success) then success = finished end
  end
  local started = first ~= '' and first or finished
  if last_run ~= '' and started ~= '' and tonumber(started) < tonumber(last_run) then
    call('HSET', key, 'last_success', success)
  else
    call('HSET', key, 'last_success', success, 'last_status', status, 'last_error', error,
      'last_run', first ~= '' and first or last_run)
  end
  call('HINCRBY', key, 'summary_rev', 1)
end

local function forget_schedule(id)
  move(stands(id, listed(id)), NONE)
  call('ZREM', C .. 'schedules:ever', id)
  call('ZREM', C .. 'firing', id)
  call('DEL', schedule_key(id))
end

-- Slots up to `mark` may have lost their rows.
local function purged(id, mark)
  local key = schedule_key(id)
  local before = call('HGET', key, 'purged')
  if before and (before == '' or tonumber(before) <= tonumber(mark)) then
    call('HSET', key, 'purged', mark)
    call('HINCRBY', key, 'rev', 1)
  end
end

-- The order digits of the blocked catch-up slot that ranks last under the schedule's own key; ''.
-- Ranks of catch-up runs are odd.
local function backlog(key)
  local last = ''
  for _, member in ipairs(call('ZRANGE', C .. 'blocked:' .. key, 0, -1)) do
    local order = string.sub(member, 1, 20)
    if order > last and string.find('13579', string.sub(order, 20), 1, true) then
      local body = call('HGET', run_key(id_of(member)), 'body') or ''
      if string.find(body, '"origin":"schedule"', 1, true) then last = order end
    end
  end
  return last
end

-- A schedule with what firing has to know besides: who has its places; which of those belong to
-- others, where that matters; when the schedule it depends on last succeeded; its backlog; the key
-- whose places these are.
local function to_fire(id)
  local more = fields_of(schedule_key(id), {'key', 'depends', 'own'}) or {'', '', ''}
  local ids = call('ZRANGE', C .. 'admitted:' .. more[1], 0, -1)
  local others = {}
  for _, run in ipairs(more[3] == '1' and ids or {}) do
    if call('HGET', run_key(run), 'schedule') ~= id then others[#others + 1] = run end
  end
  local success = more[2] ~= '' and call('HGET', schedule_key(more[2]), 'last_success') or ''
  local waiting = more[1] == 'schedule:' .. id and backlog(more[1]) or ''
  return {shown_schedule(id), ids, others, success, waiting, more[1]}
end
