-- Every script begins here. ARGV: prefix, id of the store, now in microseconds ('' means the
-- server's), sender and channel of wake-ups, verb, arguments as JSON (texts only, so that no number
-- passes through a double by accident), definitions of the runs that the verb inserts. The answer
-- is JSON of the same kind.
local P = ARGV[1]
local C = P .. 'chimes:'
local call = redis.call

if call('HGET', C .. 'store', 'id') ~= ARGV[2] then
  return redis.error_reply('CHIMESLOST ' .. tostring(call('HGET', C .. 'store', 'id')))
end

local NOW = ARGV[3]
if NOW == '' then
  local t = call('TIME')
  NOW = t[1] .. string.format('%06d', tonumber(t[2]))
end
local now = tonumber(NOW)
local args = cjson.decode(ARGV[7])

local function whole(number)
  return string.format('%.0f', number)
end

local function wake()
  call('PUBLISH', ARGV[5], ARGV[4])
end

-- The time in EventNative's format; '' stays ''.
local function iso(micros)
  if not micros or micros == '' then return '' end
  local floor = math.floor
  local n = tonumber(micros)
  local seconds = floor(n / 1000000)
  local days = floor(seconds / 86400)
  local rest = seconds - days * 86400
  local z = days + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local day = doy - floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day,
    floor(rest / 3600), floor(rest % 3600 / 60), rest % 60, n - seconds * 1000000)
end

-- Byte by byte, as sorted sets do; `<` goes by the server's locale.
local function less(x, y)
  for place = 1, math.min(#x, #y) do
    local a, b = string.byte(x, place), string.byte(y, place)
    if a ~= b then return a < b end
  end
  return #x < #y
end

-- Fields of a record by name. A missing field reads as empty: corrupt data must not stop a script
-- half-way.
local function fields_of(key, names)
  local values, any = call('HMGET', key, unpack(names)), false
  for place = 1, #names do
    any = any or values[place]
    values[place] = values[place] or ''
  end
  return any and values or nil
end

local verbs = {}
