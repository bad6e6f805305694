-- What several scripts need: leases, the end of the audit's chain, handing out, standing in sets.
local function alive(node)
  local lease = call('ZSCORE', C .. 'leases', node)
  return lease and tonumber(lease) > now
end

-- The entry that an appended one says it follows has to be the last.
local function follows(number, hash)
  local values = call('HMGET', C .. 'audit:head', 'number', 'hash')
  return (values[1] or '0') == number and (values[2] or '') == hash
end

local function append_audit(number, hash, entry)
  call('ZADD', C .. 'audit', number, entry)
  call('HSET', C .. 'audit:head', 'number', number, 'hash', hash)
end

-- `claimed`, for the first `free` of these members of queues.
local function hand_out(members, node, free)
  local taken = {}
  for place = 1, math.min(#members, free) do
    local id = id_of(members[place])
    local values = call('HMGET', run_key(id), 'attempt', 'fence', 'first')
    put(id, {
      'status', 'running', 'holder', node, 'started', '', 'claimed', NOW,
      'attempt', whole(tonumber(values[1]) + 1), 'fence', whole(tonumber(values[2]) + 1),
      'first', values[3] ~= '' and values[3] or NOW,
    })
    taken[place] = shown(id)
  end
  return taken
end

local function schedule_key(id)
  return C .. 'schedule:' .. id
end

-- A record moves between the sets it is found by. `before`, `after`: set, member and score of each
-- place where it stands, by names of their own; score '' is an unordered set.
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
