-- How long ago workers have beaten.
-- KEYS   1 workers
-- Reply  {identity, seconds, …}
-- @include clock
local now, beats = server_time(), redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 2, #beats, 2 do beats[i] = string.format('%.6f', now - beats[i]) end
return beats
