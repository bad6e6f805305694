-- Deliveries: one hash each, and their index sets.
local DELIVERY = {
  'body', 'rest', 'state', 'attempts', 'fence', 'progress', 'created', 'available', 'finished',
  'run', 'schedule', 'owner', 'channel', 'rev', 'id',
}

local function delivery_key(id)
  return C .. 'delivery:' .. id
end

local function shown_delivery(id)
  return fields_of(delivery_key(id), DELIVERY)
end

local function delivery_sets(id)
  local sets, values = {}, shown_delivery(id)
  if not values then return sets end
  local d = {}
  for place, name in ipairs(DELIVERY) do d[name] = values[place] end
  -- A corrupt one is indexed too.
  local function at(set, score) sets[set] = {set, id, tonumber(score) and score or '0'} end
  at('deliveries', d.created)
  at('deliveries:run:' .. d.run, d.created)
  at('deliveries:owner:' .. d.owner, d.created)
  at('deliveries:channel:' .. d.channel, d.created)
  at('deliveries:state:' .. d.state, d.created)
  if d.schedule ~= '' then at('deliveries:schedule:' .. d.schedule, d.created) end
  if d.state == 'pending' then at('deliveries:pending:' .. d.channel, d.available) end
  if d.finished ~= '' then at('deliveries:ended', d.finished) end
  return sets
end

-- `fields`: names and values in turn; the value @now is the moment of the script.
local function put_delivery(id, fields)
  local before = delivery_sets(id)
  for place = 2, #fields, 2 do
    if fields[place] == '@now' then fields[place] = NOW end
  end
  call('HSET', delivery_key(id), 'id', id, unpack(fields))
  call('HINCRBY', delivery_key(id), 'rev', 1)
  move(before, delivery_sets(id))
end

local function forget_delivery(id)
  move(delivery_sets(id), NONE)
  call('DEL', delivery_key(id))
end

-- Adds the deliveries of an ended run, {id, fields} each: `instead` if the last run of its schedule
-- has one of the statuses in `words`. Returns whether any is new.
local function post(schedule, deliveries, instead, words)
  local any, previous = false, nil
  if schedule ~= '' and #words > 0 then
    previous = call('HGET', cursor_key(schedule), 'last_status')
  end
  for _, word in ipairs(words) do
    if word == previous then deliveries = instead end
  end
  for _, each in ipairs(deliveries) do
    if call('EXISTS', delivery_key(each[1])) == 0 then
      put_delivery(each[1], each[2])
      any = true
    end
  end
  return any
end
