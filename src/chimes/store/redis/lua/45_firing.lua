-- Firing: reserves due schedules, and writes what was planned for them.
-- args: limit, microseconds of the reservation. Schedules that another node has reserved are left
-- out; if it dies, the reservation ends. Reservations use the server's clock, also if the caller
-- has another one. The second answer is the stored maintenance.
function verbs.take_due()
  local limit, t = tonumber(args[1]), call('TIME')
  local real = tonumber(t[1]) * 1000000 + tonumber(t[2])
  local ids, from = {}, 0
  while #ids < limit do
    local due = call('ZRANGEBYSCORE', C .. 'due', '-inf', NOW, 'LIMIT', from, 500)
    for _, id in ipairs(due) do
      local reserved = call('ZSCORE', C .. 'firing', id)
      if call('EXISTS', schedule_key(id), cursor_key(id)) < 2 then
        call('ZREM', C .. 'due', id)
      elseif #ids < limit and not (reserved and tonumber(reserved) > real) then
        call('ZADD', C .. 'firing', whole(real + tonumber(args[2])), id)
        ids[#ids + 1] = id
      end
    end
    if #due < 500 then break end
    from = from + 500
  end
  local rows = {}
  for place, id in ipairs(ids) do rows[place] = to_fire(id) end
  return {NOW, rows, call('HGET', C .. 'states', 'maintenance') or ''}
end

-- Writes what was planned. args: units, node, free permits, capabilities, ids that earlier calls of
-- the same pass have inserted, `now` if this is the last call, `later` if it cannot be. The answer:
-- as of commit, the runs that the node has claimed, the others of this pass. Nothing is claimed
-- while a unit has to be tried again, because its runs may rank higher.
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
    members = in_turn(members, free)
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
