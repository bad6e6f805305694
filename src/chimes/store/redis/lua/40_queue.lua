-- Adding runs to the queue and claiming them.

-- Completes the fields of a new run: it is canceled if its flow has ended (`over`: its `rest`
-- then), or blocked if its key is at its limit.
local function begun(fields, key, limit, parent, over)
  local blocked = ''
  if over ~= '' and parent ~= '' then
    local status = call('HGET', run_key(parent), 'status')
    if status and status ~= 'queued' and status ~= 'running' then
      for _, value in ipairs({'status', 'canceled', 'rest', over, 'blocked', '', 'holder', '',
                              'member', '', 'finished', NOW}) do
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

local function head_differs(audit)
  return #audit > 0 and not follows(audit[1], audit[2])
end

-- args: runs {id, fields, task, schedule, slot, key of an active run, limit, parent, over, and
-- deliveries if it is new (`post`)}, audit {number, hash before; number, hash, text}. The answers:
-- a word, or the record that exists.
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
      post(run[4], run[10], run[11], run[12])
    end
  end
  if #args[2] > 0 then append_audit(args[2][3], args[2][4], args[2][5]) end
  wake()
  return {NOW, answers}
end

-- The oldest active run of a key, by (created, id).
local function oldest_active(key)
  local first = call('ZRANGE', C .. 'admitted:' .. key, 0, 0, 'WITHSCORES')
  local id, created = first[1], tonumber(first[2] or 0)
  for _, member in ipairs(call('ZRANGE', C .. 'blocked:' .. key, 0, -1)) do
    local other = id_of(member)
    local at = tonumber(call('HGET', run_key(other), 'created') or '0')
    if not id or at < created or at == created and less(other, id) then id, created = other, at end
  end
  return id
end

-- add_unless_active. args: a run as for add (its key in place 6), audit.
function verbs.add_unless_active()
  local run = args[1]
  local known = existing(run[1], run[4], run[5]) or oldest_active(run[6])
  if known then return {NOW, shown(known)} end
  if head_differs(args[2]) then return {NOW, 'head'} end
  insert(run[1], run[2], run[3])
  if #args[2] > 0 then append_audit(args[2][3], args[2][4], args[2][5]) end
  wake()
  return {NOW, 'new'}
end

-- Moves delayed runs that have become due to the ready ones of their requirement.
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

-- The first `free` of the queues of these requirements together. After the clock was set back, some
-- are not due any more.
local function foremost(offers, free)
  local due, queues = {}, 0
  for _, offer in ipairs(offers) do
    local ready = C .. 'ready:' .. offer
    local from, kept, before = 0, 0, #due
    while kept < free do
      local members = call('ZRANGE', ready, from, from + free - 1)
      for _, member in ipairs(members) do
        local id = id_of(member)
        if call('HGET', run_key(id), 'status') ~= 'queued' then
          call('ZREM', ready, member)
          call('ZREM', C .. 'available', id)
          call('HDEL', C .. 'queue', id)
        elseif available_of(member) <= now then
          due[#due + 1] = member
          kept = kept + 1
        end
      end
      if #members < free then break end
      from = from + free
    end
    if #due > before then queues = queues + 1 end
  end
  -- A single queue is already in order.
  if queues > 1 then table.sort(due, sooner) end
  return due
end

-- args: node, free, offers.
function verbs.claim()
  local node, free = args[1], tonumber(args[2])
  if free <= 0 or not alive(node) then return {NOW, {}} end
  promote()
  return {NOW, hand_out(foremost(args[3], free), node, free)}
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
