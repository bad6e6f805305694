-- Token buckets. A bucket expires when it would be full, because a missing one counts as full.
-- args: name, tokens in a second, most of them, how many. The answer: how many there were.
function verbs.take_tokens()
  local key, rate, burst = C .. 'bucket:' .. args[1], tonumber(args[2]), tonumber(args[3])
  local values, count = call('HMGET', key, 'tokens', 'at'), tonumber(args[4])
  local there = burst
  if values[1] then
    local elapsed = math.max(0, now - tonumber(values[2] or NOW)) / 1000000
    there = math.min(burst, tonumber(values[1]) + elapsed * rate)
  end
  local left = there >= count and there - count or there
  local full = math.min(math.ceil((burst - left) / rate * 1000) + 10000, 1e12)
  call('HSET', key, 'tokens', string.format('%.17g', left), 'at', NOW)
  call('PEXPIRE', key, whole(full))
  return {NOW, string.format('%.17g', there)}
end
