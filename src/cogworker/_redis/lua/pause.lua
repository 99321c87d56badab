-- Pauses a queue, so that the very next take leaves it alone, or lets it go on.
-- KEYS   1 paused queues, 2 who paused them; then the bells of all workers
-- ARGV   1 the queue, 2 pause | resume, 3 who
-- Reply  1 when that changed something, or 0
-- @include clock
-- @include ring
local queue, moment = ARGV[1], string.format('%.6f', server_time())
local paused = redis.call('SISMEMBER', KEYS[1], queue)
if ARGV[2] == 'resume' then
  redis.call('SREM', KEYS[1], queue)
  redis.call('HDEL', KEYS[2], queue)
elseif paused == 0 then
  redis.call('SADD', KEYS[1], queue)
  redis.call('HSET', KEYS[2], queue, moment .. ' ' .. ARGV[3])
end
for i = 3, #KEYS do ring(KEYS[i]) end
return ARGV[2] == 'resume' and paused or 1 - paused
