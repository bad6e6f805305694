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

-- Moves delayed runs that have become due to the turns of their requirement, and those that earlier
-- versions have enqueued.
local function promote(offers)
  for _ = 1, 40 do
    local due = call('ZRANGEBYSCORE', C .. 'delayed', '-inf', NOW, 'LIMIT', 0, 500)
    for _, member in ipairs(due) do
      call('ZREM', C .. 'delayed', member)
      add_turn(member)
    end
    if #due < 500 then break end
  end
  for _, offer in ipairs(offers) do
    for _, member in ipairs(call('ZRANGE', C .. 'ready:' .. offer, 0, 499)) do
      call('ZREM', C .. 'ready:' .. offer, member)
      add_turn(member)
    end
  end
end

-- The first member of these sets between two texts.
local function first_between(sets, low, high)
  local found
  for _, set in ipairs(sets) do
    local turn = call('ZRANGEBYLEX', set, low, high, 'LIMIT', 0, 1)[1]
    if turn and (not found or string.sub(turn, 1, 39) < string.sub(found, 1, 39)) then
      found = turn
    end
  end
  return found
end

-- Owners with runs of a rank, in the order of their turns after the last one. A colon sorts after
-- every digit, so a prefix with a colon is after all that begins with the prefix.
local function owners_of(sets, rank, last, most)
  local owners = {}
  local ranges = {{'(' .. rank .. last .. ':', '(' .. rank .. ':'},
                  {'[' .. rank, '(' .. rank .. last .. ':'}}
  for _, range in ipairs(ranges) do
    local low = range[1]
    while #owners < most do
      local turn = first_between(sets, low, range[2])
      if not turn then break end
      owners[#owners + 1] = string.sub(turn, 21, 39)
      low = '(' .. string.sub(turn, 1, 39) .. ':'
    end
  end
  return owners
end

-- The first `most` due members of an owner in these sets together. After the clock was set back,
-- some are not due any more. Entries of runs that do not wait are removed.
local function due_of(sets, prefix, most)
  local due, filled = {}, 0
  for _, set in ipairs(sets) do
    local from, kept, size = 0, 0, most
    while kept < most do
      local turns = call('ZRANGEBYLEX', set, '[' .. prefix, '(' .. prefix .. ':',
        'LIMIT', from, size)
      for _, turn in ipairs(turns) do
        local member = member_of(turn)
        local id = id_of(member)
        if call('HGET', run_key(id), 'status') ~= 'queued' then
          call('ZREM', set, turn)
          call('ZREM', C .. 'available', id)
          call('HDEL', C .. 'queue', id)
        else
          from = from + 1
          if available_of(member) <= now and kept < most then
            due[#due + 1] = member
            kept = kept + 1
          end
        end
      end
      if #turns < size then break end
      size = math.min(size * 10, 1000)
    end
    if kept > 0 then filled = filled + 1 end
  end
  -- A single set is already in order.
  if filled > 1 then table.sort(due, sooner) end
  return due
end

-- The first `free` of the queues of these requirements together, as `take_turns` describes. `last`:
-- the owner that was served last, by rank.
local function foremost(offers, free, last)
  local sets, found, taken, ordered = {}, {}, {}, true
  for _, offer in ipairs(offers) do
    local set = C .. 'turns:' .. offer
    if call('EXISTS', set) == 1 then sets[#sets + 1] = set end
  end
  local function take(members, most)
    local count = 0
    for _, member in ipairs(members) do
      if count < most and #found < free and not taken[member] then
        taken[member], count = true, count + 1
        found[#found + 1] = member
      end
    end
  end
  local turn = #sets > 0 and first_between(sets, '-', '+')
  while turn and #found < free do
    local rank, waiting = string.sub(turn, 1, 20), {}
    local owners = owners_of(sets, rank, last[rank] or NO_OWNER, math.max(free, 32))
    if #owners == 1 then
      take(due_of(sets, rank .. owners[1], free - #found), free)
    else
      ordered = false
      for _, owner in ipairs(owners) do
        if due_of(sets, rank .. owner, 1)[1] then waiting[#waiting + 1] = owner end
      end
      local share = share_of(free, #waiting)
      for _, owner in ipairs(waiting) do take(due_of(sets, rank .. owner, share), share) end
      for _, owner in ipairs(waiting) do
        if #found < free then take(due_of(sets, rank .. owner, free), free) end
      end
    end
    turn = first_between(sets, '(' .. rank .. ':', '+')
  end
  if not ordered then table.sort(found, sooner) end
  return found
end

-- args: node, free, offers, rank and last owner in turn.
function verbs.claim()
  local node, free, last = args[1], tonumber(args[2]), {}
  if free <= 0 or not alive(node) then return {NOW, {}} end
  for place = 1, #args[4], 2 do last[args[4][place]] = args[4][place + 1] end
  promote(args[3])
  return {NOW, hand_out(foremost(args[3], free, last), node, free)}
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
