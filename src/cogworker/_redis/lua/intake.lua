-- Pauses the intake of all workers, those too that start later, or lets them take again.
-- KEYS   1 intake, 2 this call's record
-- ARGV   1 pause | resume, 2 who
-- Reply  '1' when that changed something, or '0'
-- @include clock
-- @include full
-- @include once
local moment = string.format('%.6f', server_time())
local before = answered(KEYS[2])
if before then return before end
local paused = redis.call('HEXISTS', KEYS[1], 'by')
begin_although_full('HDEL', KEYS[1])
if ARGV[1] == 'resume' then
  redis.call('DEL', KEYS[1])
  return answer(KEYS[2], tostring(paused))
end
if paused == 0 then redis.call('HSET', KEYS[1], 'by', ARGV[2], 'at', moment) end
return answer(KEYS[2], tostring(1 - paused))
