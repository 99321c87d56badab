-- Orders a worker to be quiet, to resume or to stop. The last order counts; a stop can't be undone.
-- KEYS   1 workers, 2 the worker's orders, 3 its bell
-- ARGV   1 identity, 2 quiet | resume | stop, 3 who orders, 4 seconds to keep the order, 5 its id
-- Reply  'ordered' | 'gone' when there is no such worker | 'stopping' when it was told to stop
-- @include clock
-- @include ring
local now = server_time()
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'gone' end
if redis.call('HGET', KEYS[2], 'order') == 'stop' then return 'stopping' end
redis.call('HSET', KEYS[2], 'id', ARGV[5], 'order', ARGV[2], 'by', ARGV[3],
           'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[2], ARGV[4])
ring(KEYS[3])
return 'ordered'
