-- Workers whose last beat is older than `threshold` seconds: candidates for a rescue.
-- KEYS   1 workers
-- ARGV   1 threshold, 2 the most to read
-- Reply  identities, the longest silent first
-- @include clock
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', server_time() - ARGV[1], 'LIMIT', 0, ARGV[2])
