-- Says that a worker lives.
-- KEYS   1 workers, 2 presence
-- ARGV   <identity> <seconds the presence lasts> <n> field, value, …
-- Reply  the server's time, epoch seconds
-- @include clock
-- @include full
local time = server_time()
begin_although_full('HDEL', KEYS[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 3, #ARGV - 1))
redis.call('EXPIRE', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[1], time, ARGV[1])
return string.format('%.6f', time)
