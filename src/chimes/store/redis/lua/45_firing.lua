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

-- What firing came to. args: units, node, free, offers, ids that earlier calls of the same pass
-- have inserted, `now` if this is the last call, `later` if it cannot be. The answer: as of commit, the runs taken, the others
-- of this pass. Those for which the node has places are its own at once; who goes first is seen
-- when all of the pass is there, so nothing is handed out while a unit has to be tried again.
function verbs.fire()
  local answers, woken = applied(args[1])
  local node, free, offered, stopped = args[2], tonumber(args[3]), {}, false
  local all_done = args[6] ~= 'later'
  for _, offer in ipairs(args[4]) do offered[offer] = true end
  local ids, members = args[5], {}
  for place, unit in ipairs(args[1]) do
    if answers[place] ~= 'done' then all_done = false end
    for _, op in ipairs(answers[place] == 'done' and unit[2] or NONE) do
      if op[1] == 'insert' then
        ids[#ids + 1] = op[2]
      elseif op[1] == 'put' then
        stopped = true
      end
    end
  end
  if free > 0 and (all_done or args[6] == 'now') and alive(node) then
    for _, id in ipairs(ids) do
      local s = state(id) or NONE
      if claimable(s) and tonumber(s.available) <= now and offered[needs_of(s.member)] then
        members[#members + 1] = s.member
      end
    end
    table.sort(members, sooner)
  end
  local taken, mine, rest = hand_out(members, node, free), {}, {}
  for place = 1, #taken do mine[id_of(members[place])] = true end
  for _, id in ipairs(ids) do
    if not mine[id] then
      local s = state(id) or NONE
      rest[#rest + 1] = {id, s.blocked or ''}
      woken = woken or claimable(s)
    end
  end
  if woken or stopped then wake() end
  return {NOW, answers, taken, rest}
end
