-- Schedules. The hash `schedule:ID` has what people wrote; edits change it. The hash `cursor:ID`
-- has where the schedule stands, and its last run; firing and completions need only this one. Its
-- `revision` is a digest of what people wrote: it shows whether a process's copy is current.
local CURSOR = {
  'revision', 'next_slot', 'next_run', 'last_slot', 'last_enqueued', 'last_run', 'last_status',
  'last_error', 'last_success', 'fired', 'purged', 'rev', 'summary_rev',
}
local LISTED = {'name', 'owner', 'created', 'updated', 'enabled', 'deleted', 'namespace', 'snoozed'}

local function shown_cursor(id)
  local values = fields_of(cursor_key(id), CURSOR)
  if values then values[#CURSOR + 1] = id end
  return values
end

local function shown_schedule(id)
  local values = shown_cursor(id)
  if values then values[#values + 1] = call('HGET', schedule_key(id), 'body') or '' end
  return values
end

local function listed(id)
  local values, s = call('HMGET', schedule_key(id), unpack(LISTED)), {}
  for place, name in ipairs(LISTED) do s[name] = values[place] or (values[3] and '' or nil) end
  s.next_run = call('HGET', cursor_key(id), 'next_run') or ''
  return s
end

-- The index sets of a schedule: set, member, score. Score '' is an unordered set.
local function schedule_sets(id, s)
  local sets = {}
  local function at(set, member, score) sets[set .. '\n' .. member] = {set, member, score} end
  if not s.created then return sets end
  if s.deleted ~= '' then
    at('schedules:deleted', id, s.deleted)
    return sets
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
  return sets
end

local function put_schedule(id, fields, cursor)
  local before = schedule_sets(id, listed(id))
  call('HSET', schedule_key(id), unpack(fields))
  call('HSET', cursor_key(id), unpack(cursor))
  call('HINCRBY', cursor_key(id), 'rev', 1)
  call('HSETNX', cursor_key(id), 'summary_rev', '0')
  local s = listed(id)
  call('ZADD', C .. 'schedules:ever', s.created, id)
  move(before, schedule_sets(id, s))
end

local function move_cursor(id, fields)
  local key = cursor_key(id)
  call('HSET', key, unpack(fields))
  call('HINCRBY', key, 'rev', 1)
  local values = call('HMGET', key, 'next_run', 'live')
  if values[2] == 'deleted' then return end
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

-- Updates the last run of a schedule (`summarize`) after that run has ended.
local function summarize(id, run, status, error)
  local key = cursor_key(id)
  local values = call('HMGET', key, 'last_run', 'last_success')
  if not values[1] then return end
  local last_run, success = values[1], values[2]
  local times = call('HMGET', run_key(run), 'first', 'finished')
  local first, finished = times[1] or '', times[2] or ''
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
  move(schedule_sets(id, listed(id)), NONE)
  call('ZREM', C .. 'schedules:ever', id)
  call('ZREM', C .. 'firing', id)
  call('DEL', schedule_key(id), cursor_key(id))
end

-- Notes that slots up to `mark` may have lost their runs.
local function purged(id, mark)
  local key = cursor_key(id)
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

-- What firing needs: the cursor (or the whole schedule), the admitted runs of the concurrency key,
-- those of other schedules if that matters, when the schedule it depends on last succeeded, and the
-- backlog.
local function to_fire(id, whole_schedule)
  local more = fields_of(cursor_key(id), {'key', 'depends', 'own'}) or {'', '', ''}
  local ids = call('ZRANGE', C .. 'admitted:' .. more[1], 0, -1)
  local others = {}
  for _, run in ipairs(more[3] == '1' and ids or {}) do
    if call('HGET', run_key(run), 'schedule') ~= id then others[#others + 1] = run end
  end
  local success = more[2] ~= '' and call('HGET', cursor_key(more[2]), 'last_success') or ''
  local waiting = more[1] == 'schedule:' .. id and backlog(more[1]) or ''
  local record = whole_schedule and shown_schedule(id) or shown_cursor(id)
  return {record, ids, others, success, waiting}
end
