-- The store itself. ARGV: prefix, new id, layout, '1' to set it up if it is missing, '1' to give it
-- a new id even if it exists, unless it has another layout. The answer: id, layout, how it was
-- founded (`forced` by an operator, `first` if it was missing), id before a conversion; empty if
-- there is none.
local store = ARGV[1] .. 'chimes:store'
local missing = redis.call('EXISTS', store) == 0
local forced = ARGV[5] == '1' and (missing or redis.call('HGET', store, 'layout') == ARGV[3])
if forced or ARGV[4] == '1' and missing then
  redis.call('HSET', store, 'id', ARGV[2], 'layout', ARGV[3],
    'founded', ARGV[5] == '1' and 'forced' or 'first')
  redis.call('HDEL', store, 'origin')
  redis.call('HSETNX', store, 'epoch', '0')
end
local values = redis.call('HMGET', store, 'id', 'layout', 'founded', 'origin')
if not values[1] then return cjson.encode({'', '', '', ''}) end
return cjson.encode({values[1], values[2] or '', values[3] or '', values[4] or values[1]})
