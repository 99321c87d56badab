-- Workers whose last beat is older than a threshold: candidates for a rescue.
-- KEYS   1 workers
-- ARGV   1 threshold in seconds, 2 how many to skip, 3 the most to read
-- Reply  {identity, beat, …}, the longest silent first
-- @include clock
local oldest = string.format('%.6f', server_time() - ARGV[1])
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', oldest, 'WITHSCORES', 'LIMIT', ARGV[2], ARGV[3])
