-- Shared by several scripts: leases, the end of the audit chain, claiming, index sets.
local function alive(node)
  local lease = call('ZSCORE', C .. 'leases', node)
  return lease and tonumber(lease) > now
end

-- Whether an entry with this number and hash is the last one.
local function follows(number, hash)
  local values = call('HMGET', C .. 'audit:head', 'number', 'hash')
  return (values[1] or '0') == number and (values[2] or '') == hash
end

local function append_audit(number, hash, entry)
  call('ZADD', C .. 'audit', number, entry)
  call('HSET', C .. 'audit:head', 'number', number, 'hash', hash)
end

-- How many of `free` runs each of so many owners gets at least, if it has as many.
local function share_of(free, owners)
  return math.ceil(free / owners)
end

-- The first `free` of these members of queues: by rank, and within a rank in turn between owners
-- (`take_turns`).
local function in_turn(members, free)
  table.sort(members, sooner)
  if #members <= free then return members end
  local ranks, chosen = {}, {}
  for _, member in ipairs(members) do
    local rank, owner = string.sub(member, 1, 20), owner_of(member)
    local last = ranks[#ranks]
    if not last or last.rank ~= rank then
      last = {rank = rank, owners = {}, runs = {}}
      ranks[#ranks + 1] = last
    end
    if not last.runs[owner] then
      last.owners[#last.owners + 1] = owner
      last.runs[owner] = {}
    end
    table.insert(last.runs[owner], member)
  end
  for _, each in ipairs(ranks) do
    table.sort(each.owners)
    local share = share_of(free, #each.owners)
    for phase = 1, 2 do
      for _, owner in ipairs(each.owners) do
        local runs = each.runs[owner]
        local first, last = 1, math.min(share, #runs)
        if phase == 2 then first, last = share + 1, #runs end
        for place = first, last do
          if #chosen < free then chosen[#chosen + 1] = runs[place] end
        end
      end
    end
  end
  table.sort(chosen, sooner)
  return chosen
end

-- Claims the runs of the first `free` of these members of queues.
local function hand_out(members, node, free)
  local claimed = {}
  for place = 1, math.min(#members, free) do
    local id = id_of(members[place])
    local values = call('HMGET', run_key(id), 'attempt', 'fence', 'first')
    put(id, {
      'status', 'running', 'holder', node, 'started', '', 'claimed', NOW, 'member', '',
      'attempt', whole((tonumber(values[1]) or 0) + 1),
      'fence', whole((tonumber(values[2]) or 0) + 1), 'first', values[3] or NOW,
    })
    claimed[place] = shown(id)
  end
  return claimed
end

local function schedule_key(id)
  return C .. 'schedule:' .. id
end

local function cursor_key(id)
  return C .. 'cursor:' .. id
end

-- Moves a record between its index sets. `before`, `after`: set, member and score of each entry, by
-- names of their own; score '' is an unordered set.
local function move(before, after)
  for place, each in pairs(before) do
    if not after[place] then
      call(each[3] == '' and 'SREM' or 'ZREM', C .. each[1], each[2])
    end
  end
  for place, each in pairs(after) do
    if each[3] == '' then
      call('SADD', C .. each[1], each[2])
    elseif not before[place] or before[place][3] ~= each[3] then
      call('ZADD', C .. each[1], each[3], each[2])
    end
  end
end
