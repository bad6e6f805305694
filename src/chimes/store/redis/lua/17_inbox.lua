-- Inbox items: one hash each, and their index sets, of all owners and of each.
local INBOX = {'body', 'owner', 'created', 'rev', 'id'}
local FILED = {'owner', 'created', 'run', 'schedule', 'read', 'starred', 'archived', 'snoozed'}

local function inbox_key(id)
  return C .. 'inbox:item:' .. id
end

local function shown_inbox(id)
  return fields_of(inbox_key(id), INBOX)
end

local function inbox_sets(id)
  local sets, values = {}, fields_of(inbox_key(id), FILED)
  if not values then return sets end
  local item = {}
  for place, name in ipairs(FILED) do item[name] = values[place] end
  local function at(set, score) sets[set] = {set, id, tonumber(score) and score or '0'} end
  for _, whose in ipairs({'', ':owner:' .. item.owner}) do
    if item.archived ~= '' then
      at('inbox:archived' .. whose, item.created)
    else
      at('inbox:present' .. whose, item.created)
      if item.read == '' then
        at('inbox:unread' .. whose, item.created)
        if item.snoozed ~= '' then at('inbox:asleep' .. whose, item.snoozed) end
      end
    end
    if item.starred == '1' then at('inbox:starred' .. whose, item.created) end
  end
  if item.starred ~= '1' then at('inbox:passing', item.created) end
  if item.run ~= '' then at('inbox:run:' .. item.run, item.created) end
  if item.schedule ~= '' then at('inbox:schedule:' .. item.schedule, item.created) end
  return sets
end

local function put_inbox(id, fields)
  local before = inbox_sets(id)
  call('HSET', inbox_key(id), 'id', id, unpack(fields))
  call('HINCRBY', inbox_key(id), 'rev', 1)
  move(before, inbox_sets(id))
end

local function forget_inbox(id)
  move(inbox_sets(id), NONE)
  call('DEL', inbox_key(id))
end
