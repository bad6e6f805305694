-- The store itself. ARGV: prefix, new id, revision of the layout, '1' to set it up anew where it
-- is missing, '1' to give it a new id even so. The answer: id, revision, how it was founded
-- (`forced` by an operator, `first` if it was missing); or nothing if there
-- is none.
local store = ARGV[1] .. 'chimes:store'
if ARGV[5] == '1' or ARGV[4] == '1' and redis.call('EXISTS', store) == 0 then
  redis.call('HSET', store, 'id', ARGV[2], 'layout', ARGV[3],
    'founded', ARGV[5] == '1' and 'forced' or 'first')
  redis.call('HSETNX', store, 'epoch', '0')
end
local values = redis.call('HMGET', store, 'id', 'layout', 'founded')
if not values[1] then return cjson.encode({'', '', ''}) end
return cjson.encode({values[1], values[2] or '', values[3] or ''})
