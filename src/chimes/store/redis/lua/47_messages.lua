-- Claiming deliveries, and retention of messages.

-- args: channels that the caller can send by, the others, limit, microseconds of the hold and
-- after which the others' are overdue.
function verbs.claim_deliveries()
  local limit, due = tonumber(args[3]), {}
  local function look(channels, latest)
    for _, channel in ipairs(channels) do
      local set = C .. 'deliveries:pending:' .. channel
      local ids = call('ZRANGEBYSCORE', set, '-inf', latest, 'WITHSCORES', 'LIMIT', 0, limit)
      for place = 1, #ids, 2 do
        if call('EXISTS', delivery_key(ids[place])) == 1 then
          due[#due + 1] = {tonumber(ids[place + 1]), ids[place]}
        else
          call('ZREM', set, ids[place])
        end
      end
    end
  end
  look(args[1], NOW)
  look(args[2], whole(now - tonumber(args[5])))
  table.sort(due, function(x, y) return x[1] < y[1] or x[1] == y[1] and less(x[2], y[2]) end)
  local taken, back = {}, whole(now + tonumber(args[4]))
  for place = 1, math.min(#due, limit) do
    local id = due[place][2]
    local values = fields_of(delivery_key(id), {'attempts', 'fence'})
    put_delivery(id, {
      'attempts', whole((tonumber(values[1]) or 0) + 1),
      'fence', whole((tonumber(values[2]) or 0) + 1),
      'available', back,
    })
    taken[place] = shown_delivery(id)
  end
  return {NOW, taken}
end

-- args: before, limit.
function verbs.prune_messages()
  local left, count = tonumber(args[2]), 0
  local function prune(set, key, forget)
    local ids = call('ZRANGEBYSCORE', C .. set, '-inf', '(' .. args[1], 'LIMIT', 0, left - count)
    for _, id in ipairs(ids) do
      if call('EXISTS', key(id)) == 1 then forget(id) else call('ZREM', C .. set, id) end
    end
    count = count + #ids
  end
  prune('deliveries:ended', delivery_key, forget_delivery)
  prune('inbox:passing', inbox_key, forget_inbox)
  return {NOW, tostring(count)}
end

-- args: ids.
function verbs.forget_inbox()
  local count = 0
  for _, id in ipairs(args[1]) do
    if call('EXISTS', inbox_key(id)) == 1 then
      forget_inbox(id)
      count = count + 1
    end
  end
  return {NOW, tostring(count)}
end
