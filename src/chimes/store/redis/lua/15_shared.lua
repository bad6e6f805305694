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
