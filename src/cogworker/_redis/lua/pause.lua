-- Pauses a queue, so that the very next take leaves it alone, or lets it go on; or disables a
-- periodic entry, and enables it, in the same way.
-- KEYS   1 paused queues, 2 who paused them, 3 this call's record
-- ARGV   1 the queue, 2 pause | resume, 3 who
-- Reply  '1' when that changed something, or '0'
-- @include clock
-- @include full
-- @include once
local queue, moment = ARGV[1], string.format('%.6f', server_time())
local before = answered(KEYS[3])
if before then return before end
local paused, noted = redis.call('SISMEMBER', KEYS[1], queue), redis.call('HEXISTS', KEYS[2], queue)
begin_although_full('HDEL', KEYS[2])
if ARGV[2] == 'resume' then
  redis.call('SREM', KEYS[1], queue)
  redis.call('HDEL', KEYS[2], queue)
  return answer(KEYS[3], tostring(paused))
end
if paused == 0 or noted == 0 then
  redis.call('HSET', KEYS[2], queue, moment .. ' ' .. ARGV[3])
  redis.call('SADD', KEYS[1], queue)
end
return answer(KEYS[3], tostring(1 - paused))
