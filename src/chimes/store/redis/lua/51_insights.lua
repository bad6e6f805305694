-- What is counted without handing out whole records. The status alone is a field; where a run came
-- from and whose it is are in its body, which may be damaged.
local JUDGED = {succeeded = true, failed = true, timeout = true, unknown = true}

local function body_of(text)
  local readable, body = pcall(cjson.decode, text)
  return readable and type(body) == 'table' and body or {}
end

-- The newest runs of each schedule. args: schedules, how many of each, '' or the owner's type, its
-- id. For each run: schedule, id, status, origin, created, planned, first, finished.
function verbs.newest()
  local found, each = {}, tonumber(args[2])
  for _, schedule in ipairs(args[1]) do
    local key, left, from = C .. 'runs:schedule:' .. schedule, each, 0
    while left > 0 do
      local ids = call('ZREVRANGE', key, from, from + each - 1)
      for _, id in ipairs(ids) do
        local f = call('HMGET', run_key(id), 'status', 'body', 'created', 'planned', 'first',
          'finished')
        local body = f[1] and body_of(f[2]) or {}
        local owner = type(body.owner) == 'table' and body.owner or {}
        local mine = args[3] == '' or owner.type == args[3] and owner.id == args[4]
        if f[1] and mine and left > 0 then
          left = left - 1
          found[#found + 1] = {schedule, id, f[1], tostring(body.origin or ''), f[3] or '',
            f[4] or '', f[5] or '', f[6] or ''}
        end
      end
      if #ids < each then break end
      from = from + each
    end
  end
  return {NOW, found}
end

-- Of each schedule: when its newest judged run was planned if that and those before it, as many as
-- asked for, ended badly; else ''. args: schedules, how many.
function verbs.failing()
  local found, wanted = {}, tonumber(args[2])
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
    found[place] = judged == wanted and newest or ''
  end
  return {NOW, found}
end
