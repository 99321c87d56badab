-- Orders a worker to be quiet, to resume or to stop. The last order counts; a stop can't be undone.
-- KEYS   1 workers, 2 the worker's orders, 3 its bell, 4 this call's record
-- ARGV   1 identity, 2 quiet | resume | stop, 3 who orders, 4 seconds to keep the order, 5 its id
-- Reply  'ordered' | 'gone' when there is no such worker | 'stopping' when it was told to stop
-- @include clock
-- @include full
-- @include once
-- @include ring
local moment = string.format('%.6f', server_time())
local before = answered(KEYS[4])
if before then return before end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'gone' end
if redis.call('HGET', KEYS[2], 'order') == 'stop' then return 'stopping' end
begin_although_full('HDEL', KEYS[2])
redis.call('HSET', KEYS[2], 'id', ARGV[5], 'order', ARGV[2], 'by', ARGV[3], 'at', moment)
redis.call('EXPIRE', KEYS[2], ARGV[4])
ring(KEYS[3])
return answer(KEYS[4], 'ordered')
