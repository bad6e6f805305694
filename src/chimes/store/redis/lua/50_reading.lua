-- Read-only verbs.
function verbs.now()
  return {NOW}
end

-- args: ids, '1' for the children of flows that have not ended. For each: record, children.
function verbs.runs()
  local rows = {}
  for _, id in ipairs(args[1]) do
    local row = shown(id)
    if row then
      local children = {}
      if args[2] == '1' and call('HGET', run_key(id), 'flow') == '1' then
        for _, child in ipairs(call('ZRANGE', C .. 'runs:parent:' .. id, 0, -1)) do
          if active(state(child) or NONE) then children[#children + 1] = shown(child) end
        end
      end
      rows[#rows + 1] = {row, children}
    end
  end
  return {NOW, rows}
end

-- All runs that have not ended, as of one moment. args: ids of others that are wanted too.
function verbs.active_runs()
  local rows, seen = {}, {}
  local function add(id)
    local row = not seen[id] and shown(id)
    if row then rows[#rows + 1] = row end
    seen[id] = true
  end
  for _, status in ipairs({'queued', 'running'}) do
    for _, id in ipairs(call('ZRANGE', C .. 'runs:status:' .. status, 0, -1)) do add(id) end
  end
  for _, id in ipairs(args[1]) do add(id) end
  return {NOW, rows}
end

-- args: ids, '1' for everything that firing needs.
function verbs.schedules()
  local records = {}
  for _, id in ipairs(args[1]) do
    if call('EXISTS', schedule_key(id), cursor_key(id)) == 2 then
      records[#records + 1] = args[2] == '1' and to_fire(id, true) or {shown_schedule(id)}
    end
  end
  return {NOW, records}
end

-- args: keys. Their texts; '' if missing.
function verbs.definitions()
  local texts = {}
  for place, key in ipairs(args[1]) do texts[place] = call('GET', definition_key(key)) or '' end
  return {NOW, texts}
end

-- args: moment, limit. Definitions that were not marked as used since: keys and marks in turn.
function verbs.old_definitions()
  local marks = call('ZRANGEBYSCORE', C .. 'definitions', '-inf', '(' .. args[1], 'WITHSCORES',
    'LIMIT', 0, args[2])
  for place = 2, #marks, 2 do marks[place] = whole(tonumber(marks[place])) end
  return {NOW, marks}
end

-- args: ids.
function verbs.deliveries()
  local rows = {}
  for _, id in ipairs(args[1]) do rows[#rows + 1] = shown_delivery(id) end
  return {NOW, rows}
end

-- args: channels.
function verbs.next_delivery()
  local earliest
  for _, channel in ipairs(args[1]) do
    local first = call('ZRANGE', C .. 'deliveries:pending:' .. channel, 0, 0, 'WITHSCORES')
    local at = tonumber(first[2])
    if at and not (earliest and earliest <= at) then earliest = at end
  end
  return {NOW, earliest and whole(earliest) or ''}
end

function verbs.inbox()
  return {NOW, shown_inbox(args[1]) or ''}
end

-- args: '' or whose; '' or the moment at which those with a longer snooze do not count.
function verbs.unread()
  local count = call('ZCARD', C .. 'inbox:unread' .. args[1])
  if args[2] ~= '' then
    count = count - call('ZCOUNT', C .. 'inbox:asleep' .. args[1], '(' .. args[2], '+inf')
  end
  return {NOW, tostring(count)}
end

-- args: schedule, slots. For each slot the record, or ''.
function verbs.slots()
  local rows = {}
  for place, slot in ipairs(args[2]) do
    local id = existing('', args[1], slot)
    rows[place] = id and shown(id) or ''
  end
  return {NOW, rows}
end

-- Which of these are taken. args: {id, schedule, slot} each.
function verbs.taken()
  local rows = {}
  for place, each in ipairs(args[1]) do
    rows[place] = existing(each[1], each[2], each[3]) and '1' or ''
  end
  return {NOW, rows}
end

-- Ids of the queued runs of a schedule, blocked or not.
function verbs.waiting()
  return {NOW, call('ZINTER', 2, C .. 'runs:schedule:' .. args[1], C .. 'runs:status:queued')}
end

-- Runs whose node is gone: oldest first. args: limit. Also the nodes whose lease has ended.
function verbs.orphans()
  local held, ended = {}, {}
  for _, node in ipairs(call('ZRANGE', C .. 'leases', 0, -1)) do
    if not alive(node) then ended[#ended + 1] = node end
  end
  for _, node in ipairs(call('SMEMBERS', C .. 'holders')) do
    if not alive(node) then
      local ids = call('ZRANGE', C .. 'claims:' .. node, 0, -1, 'WITHSCORES')
      for place = 1, #ids, 2 do held[#held + 1] = {tonumber(ids[place + 1]), ids[place]} end
    end
  end
  table.sort(held, function(x, y) return x[1] < y[1] or x[1] == y[1] and less(x[2], y[2]) end)
  local ids = {}
  for place = 1, math.min(#held, tonumber(args[1])) do ids[place] = held[place][2] end
  return {NOW, ids, ended}
end

function verbs.held()
  local known = call('EXISTS', C .. 'node:' .. args[1]) == 1
  return {NOW, known and '1' or '', call('ZRANGE', C .. 'claims:' .. args[1], 0, -1)}
end

function verbs.nodes()
  local rows = {}
  for _, id in ipairs(call('ZRANGE', C .. 'leases', 0, -1)) do
    local values = call('HMGET', C .. 'node:' .. id, 'body', 'started', 'heartbeat', 'lease',
      'offset', 'drain', 'facts')
    if values[1] then
      values[6] = values[6] or ''
      values[7] = values[7] or ''
      values[8] = id
      rows[#rows + 1] = values
    end
  end
  return {NOW, rows}
end

-- args: since, limit. The newest, newest first.
function verbs.node_marks()
  return {NOW, call('ZRANGE', C .. 'marks', '+inf', args[1], 'BYSCORE', 'REV', 'LIMIT', 0, args[2])}
end

-- args: before, most. As `prune`.
function verbs.prunable()
  local most, from, count = tonumber(args[2]), 0, 0
  while count < most do
    local ids = call('ZRANGEBYSCORE', C .. 'ended', '-inf', '(' .. args[1], 'LIMIT', from, 500)
    for _, id in ipairs(ids) do
      local parent = call('HGET', run_key(id), 'parent') or ''
      local status = parent ~= '' and call('HGET', run_key(parent), 'status')
      if status ~= 'queued' and status ~= 'running' then count = count + 1 end
    end
    if #ids < 500 then break end
    from = from + 500
  end
  return {NOW, tostring(math.min(count, most))}
end

-- The lowest score of a sorted set.
local function lowest(key)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first[2] and whole(tonumber(first[2])) or ''
end

function verbs.next_due()
  return {NOW, lowest(C .. 'due')}
end

function verbs.next_available()
  return {NOW, lowest(C .. 'available')}
end

-- A part of a sorted set, with the records behind it. args: set, '1' for descending, lowest,
-- highest (as ZCOUNT takes them, '' for none), score and member of the last one seen, how many,
-- 'run', 'schedule', 'delivery', 'inbox', 'name' (members are name NUL id), 'audit' (members are
-- the records) or 'definition' (the key of a run's definition, its position).
local function position(key, score, member, lex, inclusive)
  local rank = call('ZRANK', key, member)
  if rank and (lex or call('ZSCORE', key, member) == score) then
    return rank + (inclusive and 1 or 0)
  end
  if lex then return call('ZLEXCOUNT', key, '-', (inclusive and '[' or '(') .. member) end
  local before = call('ZCOUNT', key, '-inf', '(' .. score)
  for _, other in ipairs(call('ZRANGEBYSCORE', key, score, score)) do
    if less(other, member) or inclusive and other == member then before = before + 1 end
  end
  return before
end

local function record_of(kind, member)
  if kind == 'run' then return shown(member) end
  if kind == 'audit' then return member end
  if kind == 'definition' then
    local created = whole(tonumber(call('ZSCORE', C .. 'runs', member)))
    return {call('HGET', run_key(member), 'def') or '', created, member}
  end
  if kind == 'delivery' then return shown_delivery(member) end
  if kind == 'inbox' then return shown_inbox(member) end
  if kind == 'name' then member = string.sub(member, string.find(member, '\0', 1, true) + 1) end
  return shown_schedule(member)
end

function verbs.page()
  local key, descending, kind = C .. args[1], args[2] == '1', args[8]
  local lex = kind == 'name' or args[5] == 'lex'
  local count = lex and 'ZLEXCOUNT' or 'ZCOUNT'
  local lowest = lex and '-' or '-inf'
  local first, last = 0, call('ZCARD', key) - 1
  if args[3] ~= '' then
    local below = string.sub(args[3], 1, 1) == '[' and '(' .. string.sub(args[3], 2)
      or '(' .. args[3]
    first = call(count, key, lowest, below)
  end
  if args[4] ~= '' then last = call(count, key, lowest, args[4]) - 1 end
  if args[6] ~= '' then
    if descending then
      last = math.min(last, position(key, args[5], args[6], lex, false) - 1)
    else
      first = math.max(first, position(key, args[5], args[6], lex, true))
    end
  end
  local wanted = tonumber(args[7])
  local more = last - first + 1 > wanted
  if more and descending then first = last - wanted + 1 end
  if more and not descending then last = first + wanted - 1 end
  local members = first <= last and call('ZRANGE', key, first, last) or {}
  local rows = {}
  for place, member in ipairs(members) do
    rows[descending and #members - place + 1 or place] = record_of(kind, member) or ''
  end
  return {NOW, rows, more and '1' or ''}
end

function verbs.sizes()
  local rows = {}
  for place, set in ipairs(args[1]) do rows[place] = tostring(call('ZCARD', C .. set)) end
  return {NOW, rows}
end

function verbs.counts()
  local rows = {
    tostring(call('ZCARD', C .. 'schedules')),
    tostring(call('SCARD', C .. 'schedules:enabled')),
    tostring(call('ZCOUNT', C .. 'due', '-inf', NOW)),
  }
  for place, status in ipairs(args[1]) do
    rows[place + 3] = tostring(call('ZCARD', C .. 'runs:status:' .. status))
  end
  for _, state_ in ipairs(args[2]) do
    rows[#rows + 1] = tostring(call('ZCARD', C .. 'deliveries:state:' .. state_))
  end
  return {NOW, rows}
end

function verbs.logs()
  return {NOW, call('LRANGE', C .. 'logs:' .. args[1], args[2], args[3])}
end

-- The last line of each of these, and its number. args: ids.
function verbs.last_logs()
  local rows = {}
  for _, id in ipairs(args[1]) do
    local line = call('LINDEX', C .. 'logs:' .. id, -1)
    if line then rows[#rows + 1] = {id, tostring(call('LLEN', C .. 'logs:' .. id)), line} end
  end
  return {NOW, rows}
end

-- Which of these have a log, and how long it is. args: ids.
function verbs.log_lengths()
  local rows = {}
  for _, id in ipairs(args[1]) do
    local length = call('LLEN', C .. 'logs:' .. id)
    if length > 0 then rows[#rows + 1] = {id, tostring(length)} end
  end
  return {NOW, rows}
end

function verbs.value()
  return {NOW, call('HGET', C .. args[1], args[2]) or ''}
end

local SECRET_TEXTS = {
  schedule = function(id) return call('HGET', schedule_key(id), 'body') end,
  run = function(id) return call('HGET', run_key(id), 'args') end,
  definition = function(id) return call('GET', definition_key(id)) end,
  delivery = function(id) return call('HGET', delivery_key(id), 'body') end,
}

-- args: kind of records, sorted set of all, first rank, how many. The texts that may have secrets:
-- id and text of each, and how many records there were.
function verbs.secret_texts()
  local texts, first = {}, tonumber(args[3])
  local ids = call('ZRANGE', C .. args[2], first, first + tonumber(args[4]) - 1)
  for _, id in ipairs(ids) do
    local text = SECRET_TEXTS[args[1]](id)
    if text then texts[#texts + 1] = {id, text} end
  end
  return {NOW, texts, tostring(#ids)}
end

function verbs.values()
  return {NOW, call('HVALS', C .. args[1])}
end

function verbs.pairs()
  return {NOW, call('HGETALL', C .. args[1])}
end

function verbs.head()
  local values = call('HMGET', C .. 'audit:head', 'number', 'hash')
  return {NOW, values[1] or '0', values[2] or ''}
end
