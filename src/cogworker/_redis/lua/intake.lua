-- Pauses the intake of all workers, those too that start later, or lets them take again.
-- KEYS   1 intake; then the bells of all workers
-- ARGV   1 pause | resume, 2 who
-- Reply  1 when that changed something, or 0
-- @include clock
-- @include ring
local moment = string.format('%.6f', server_time())
local paused = redis.call('EXISTS', KEYS[1])
if ARGV[1] == 'resume' then
  redis.call('DEL', KEYS[1])
elseif paused == 0 then
  redis.call('HSET', KEYS[1], 'by', ARGV[2], 'at', moment)
end
for i = 2, #KEYS do ring(KEYS[i]) end
return ARGV[1] == 'resume' and paused or 1 - paused
