-- Conversion of layout 1. Programs of either layout refuse the store until it is complete.
-- The store gets a new id, so that the scripts of connected processes of layout 1 are refused;
-- marker files keep the former one, `origin`. An interrupted conversion has done that already.
-- args: new id. The answer: nodes whose leases are alive, then nothing happens; id; numbers of
-- schedules and runs.
function verbs.begin_conversion()
  local live = call('ZRANGEBYSCORE', C .. 'leases', '(' .. NOW, '+inf')
  local id = ARGV[2]
  if #live == 0 and call('HGET', C .. 'store', 'layout') == '1' then
    call('HSET', C .. 'store', 'layout', '1-2', 'id', args[1], 'origin', id)
    id = args[1]
  end
  local schedules, runs = call('ZCARD', C .. 'schedules:ever'), call('ZCARD', C .. 'runs')
  return {NOW, live, id, tostring(schedules), tostring(runs)}
end

local function is_old(kind, id)
  if kind == 'runs' then
    return call('HEXISTS', run_key(id), 'body') == 1 and call('HEXISTS', run_key(id), 'def') == 0
  end
  return call('EXISTS', schedule_key(id)) == 1 and call('EXISTS', cursor_key(id)) == 0
end

-- args: 'runs' or 'schedules', sorted set of all, first rank, how many. Those of layout 1 among
-- them: id, names and values in turn.
function verbs.old_records()
  local records, first = {}, tonumber(args[3])
  for _, id in ipairs(call('ZRANGE', C .. args[2], first, first + tonumber(args[4]) - 1)) do
    if is_old(args[1], id) then
      local key = args[1] == 'runs' and run_key(id) or schedule_key(id)
      records[#records + 1] = {id, call('HGETALL', key)}
    end
  end
  return {NOW, records}
end

-- args: 'runs' or 'schedules'; id and fields of each run, or id, fields and cursor of each
-- schedule.
function verbs.convert()
  for _, each in ipairs(args[2]) do
    local id = each[1]
    if args[1] == 'runs' then
      call('DEL', run_key(id))
      write_run(id, each[2])
      local f = call('HMGET', run_key(id), 'schedule', 'key')
      if f[1] and f[2] == 'schedule:' .. f[1] then call('ZREM', C .. 'runs:key:' .. f[2], id) end
    else
      call('DEL', schedule_key(id))
      call('HSET', schedule_key(id), unpack(each[2]))
      call('HSET', cursor_key(id), unpack(each[3]))
    end
  end
  return {NOW}
end

-- args: the former prefix of `claims:NODE`.
function verbs.end_conversion()
  for _, node in ipairs(call('SMEMBERS', C .. 'holders')) do
    if call('EXISTS', C .. args[1] .. node) == 1 then
      call('RENAME', C .. args[1] .. node, C .. 'claims:' .. node)
    end
  end
  call('HSET', C .. 'store', 'layout', '2')
  return {NOW}
end
