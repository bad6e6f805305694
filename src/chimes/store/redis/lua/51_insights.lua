-- Counts that do not return whole records. Bodies and definitions may be corrupt.
local JUDGED = {succeeded = true, failed = true, timeout = true, unknown = true}

local function body_of(text)
  local readable, body = pcall(cjson.decode, text)
  return readable and type(body) == 'table' and body or {}
end

-- Decoded once per call: many runs share a definition.
local definitions = {}

local function definition_of(key)
  if not definitions[key] then
    definitions[key] = body_of(call('GET', definition_key(key)) or '')
  end
  return definitions[key]
end

-- The newest runs of each schedule. args: schedules, how many of each, '' or the owner's type, its
-- id. For each run: schedule, id, status, origin, created, planned, first, finished.
function verbs.newest()
  local rows, each = {}, tonumber(args[2])
  for _, schedule in ipairs(args[1]) do
    local key, left, from = C .. 'runs:schedule:' .. schedule, each, 0
    while left > 0 do
      local ids = call('ZREVRANGE', key, from, from + each - 1)
      for _, id in ipairs(ids) do
        local f = call('HMGET', run_key(id), 'status', 'body', 'created', 'planned', 'first',
          'finished', 'def')
        local body = f[1] and body_of(f[2] or '') or {}
        local owner = definition_of(f[7] or '').owner
        owner = type(owner) == 'table' and owner or {}
        local mine = args[3] == '' or owner.type == args[3] and owner.id == args[4]
        if f[1] and mine and left > 0 then
          left = left - 1
          rows[#rows + 1] = {schedule, id, f[1], tostring(body.origin or ''), f[3] or '',
            f[4] or '', f[5] or '', f[6] or ''}
        end
      end
      if #ids < each then break end
      from = from + each
    end
  end
  return {NOW, rows}
end

-- Statuses of the newest judged runs of a schedule, newest first. args: schedule, how many at most,
-- earliest creation, ids and statuses of runs that are about to end.
function verbs.newest_ends()
  local found, wanted, since, ended, from = {}, tonumber(args[2]), tonumber(args[3]), {}, 0
  for place = 1, #args[4], 2 do ended[args[4][place]] = args[4][place + 1] end
  while #found < wanted do
    local ids = call('ZREVRANGE', C .. 'runs:schedule:' .. args[1], from, from + 99)
    for _, id in ipairs(ids) do
      local f = call('HMGET', run_key(id), 'status', 'created')
      if (tonumber(f[2]) or 0) < since then return {NOW, found} end
      local status = ended[id] or f[1]
      if #found < wanted and JUDGED[status] then found[#found + 1] = status end
    end
    if #ids < 100 then break end
    from = from + 100
  end
  return {NOW, found}
end

-- Of each schedule: when its newest judged run was planned if that and those before it, as many as
-- asked for, ended badly; else ''. args: schedules, how many.
function verbs.failing()
  local rows, wanted = {}, tonumber(args[2])
  for place, schedule in ipairs(args[1]) do
    local from, judged, newest = 0, 0, ''
    while judged < wanted do
      local ids = call('ZREVRANGE', C .. 'runs:schedule:' .. schedule, from, from + 9)
      for _, id in ipairs(ids) do
        local f = call('HMGET', run_key(id), 'status', 'planned')
        if judged < wanted and f[1] and JUDGED[f[1]] then
          if f[1] == 'succeeded' then
            newest, judged = '', wanted + 1
          else
            judged = judged + 1
            if judged == 1 then newest = f[2] or '' end
          end
        end
      end
      if #ids < 10 then break end
      from = from + 10
    end
    rows[place] = judged == wanted and newest or ''
  end
  return {NOW, rows}
end

-- Former names of the default namespace.
local former = {native = 'default', catbird = 'default'}

-- args[6]: the owner's type and id, namespace, kind and origin, each '' for any.
local function matches(definition, origin)
  local owner = type(definition.owner) == 'table' and definition.owner or {}
  local target = type(definition.target) == 'table' and definition.target or {}
  local namespace = former[definition.namespace] or definition.namespace
  local has = {owner.type, owner.id, namespace, target.kind, origin}
  for place = 1, 5 do
    local wanted = args[6][place]
    if wanted ~= '' and has[place] ~= wanted then return false end
  end
  return true
end

local function any_wanted()
  for _, wanted in ipairs(args[6]) do
    if wanted ~= '' then return true end
  end
  return false
end

-- How many of the bounds are reached.
local function bracket_of(lag, bounds)
  local low, high = 0, #bounds
  while low < high do
    local middle = math.floor((low + high) / 2)
    if lag >= tonumber(bounds[middle + 1]) then low = middle + 1 else high = middle end
  end
  return low
end

local function first_node(id, holder)
  local attempts = body_of(call('GET', rest_key(id)) or '').attempts
  local attempt = type(attempts) == 'table' and attempts[1]
  local node = type(attempt) == 'table' and attempt.node or holder
  return type(node) == 'string' and node ~= '' and node or '?'
end

-- A part of a window, counted. args: set by planned time, since, until, step, how many at most,
-- what has to match, score and id of the last one seen ('' at the beginning), runs made earlier
-- do not count ('' for none); and for lags: bounds, '1' by node. Names and numbers in turn: bucket,
-- and status or node and bracket, parted by line ends; where it stopped, or ''.
function verbs.window()
  local key, since, step = C .. args[1], tonumber(args[2]), tonumber(args[4])
  local bounds, by_node = args[10], args[11] == '1'
  local filtered = bounds or any_wanted()
  local first = call('ZCOUNT', key, '-inf', '(' .. args[2])
  local last = call('ZCOUNT', key, '-inf', '(' .. args[3]) - 1
  if args[8] ~= '' then first = math.max(first, position(key, args[7], args[8], false, true)) end
  local stop = math.min(last, first + tonumber(args[5]) - 1)
  local counts, names, at, seen = {}, {}, '', ''
  for _, id in ipairs(first <= stop and call('ZRANGE', key, first, stop) or {}) do
    local f = call('HMGET', run_key(id), 'status', 'planned', 'created', 'first', 'holder',
      filtered and 'body' or 'rev', 'def')
    at, seen = call('ZSCORE', key, id), id
    local origin = filtered and f[1] and body_of(f[6] or '').origin
    local made = args[9] == '' or tonumber(f[3] or '0') >= tonumber(args[9])
    if f[1] and f[2] and made and (not filtered or matches(definition_of(f[7] or ''), origin)) then
      local name
      if not bounds then
        name = f[1]
      elseif origin == 'schedule' and f[4] then
        local bracket = bracket_of(tonumber(f[4]) - tonumber(f[2]), bounds)
        name = (by_node and first_node(id, f[5]) or '') .. '\n' .. bracket
      end
      if name then
        name = whole(math.floor((tonumber(f[2]) - since) / step)) .. '\n' .. name
        if not counts[name] then names[#names + 1] = name end
        counts[name] = (counts[name] or 0) + 1
      end
    end
  end
  local rows = {}
  for _, name in ipairs(names) do
    rows[#rows + 1] = name
    rows[#rows + 1] = whole(counts[name])
  end
  local more = stop < last
  return {NOW, rows, more and whole(tonumber(at)) or '', more and seen or ''}
end
