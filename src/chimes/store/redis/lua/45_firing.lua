-- Due schedules: taken, and what was planned of them written down.
-- args: limit, microseconds of the reservation. Schedules that another node has just taken
-- are left out; should it die, they are free again soon. The server's own time counts here,
-- whatever clock decides what is due.
function verbs.take_due()
  local limit, t = tonumber(args[1]), call('TIME')
  local real = tonumber(t[1]) * 1000000 + tonumber(t[2])
  local found, from = {}, 0
  while #found < limit do
    local due = call('ZRANGEBYSCORE', C .. 'due', '-inf', NOW, 'LIMIT', from, 500)
    for _, id in ipairs(due) do
      local taken = call('ZSCORE', C .. 'firing', id)
      if call('EXISTS', schedule_key(id)) == 0 then
        call('ZREM', C .. 'due', id)
      elseif #found < limit and not (taken and tonumber(taken) > real) then
        call('ZADD', C .. 'firing', whole(real + tonumber(args[2])), id)
        found[#found + 1] = id
      end
    end
    if #due < 500 then break end
    from = from + 500
  end
  local rows = {}
  for place, id in ipairs(found) do rows[place] = to_fire(id) end
  return {NOW, rows}
end

-- What firing came to. args: units, node, free, offers. Those of the new runs for which the node
-- has places are its own at once. The answer: as of commit, the runs taken, the other new ones.
function verbs.fire()
  local answers, woken = applied(args[1])
  local node, free, offered = args[2], tonumber(args[3]), {}
  for _, offer in ipairs(args[4]) do offered[offer] = true end
  local members, others, stopped = {}, {}, false
  for place, unit in ipairs(args[1]) do
    for _, op in ipairs(answers[place] == 'done' and unit[2] or NONE) do
      if op[1] == 'insert' then
        local s = state(op[2])
        others[#others + 1] = op[2]
        if claimable(s) and tonumber(s.available) <= now and offered[needs_of(s.member)] then
          members[#members + 1] = s.member
        end
      elseif op[1] == 'put' then
        stopped = true
      end
    end
  end
  local taken = {}
  if free > 0 and #members > 0 and alive(node) then
    table.sort(members, sooner)
    taken = hand_out(members, node, free)
  end
  local rest = {}
  for _, id in ipairs(others) do
    local s = state(id)
    if s.status ~= 'running' then
      rest[#rest + 1] = {id, s.status, s.blocked}
      woken = woken or claimable(s)
    end
  end
  if woken or stopped then wake() end
  return {NOW, answers, taken, rest}
end
