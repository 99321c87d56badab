-- Moves the jobs that a dead worker held, and forgets the worker when it holds none any more.
-- KEYS   1 queues, 2 workers, 3 presence, 4 in-flight hash, 5 orders, 6 bell; the others are named
--        by the groups
-- ARGV   <this call's record> <identity> <threshold in seconds, or '' when the worker itself asks>
--        <n> groups
-- Sent again, it answers as the first time: whose rescue it was, tells of the deaths.
-- Reply  {'alive'} | {'rescued', lost tags, failed {tag, error, …}, problems {key, error, …},
--        refused {tag, verb, why, …}}
-- @include input
-- @include groups
-- @include once
-- @include dead
-- @include full
local record = key()
local before = answered(record)
if before then return cmsgpack.unpack(before) end
local worker, threshold = text(), text()
if threshold ~= '' and not is_dead(KEYS[2], KEYS[3], worker, tonumber(threshold)) then
  return {'alive'}
end
begin_although_full('HDEL', KEYS[4])
move_groups()
local left = redis.call('HLEN', KEYS[4]) - redis.call('HEXISTS', KEYS[4], '@turn')
if left == 0 then
  -- A worker that wakes goes on with its turns: without their number, a packet that comes late
  -- could take other jobs under the tags that it still settles.
  -- One that was cut off still has to obey what it was told meanwhile.
  if threshold == '' then
    redis.call('DEL', KEYS[4], KEYS[5], KEYS[6])
  else
    redis.call('EXPIRE', KEYS[4], 3600)
  end
  redis.call('DEL', KEYS[3])
  redis.call('ZREM', KEYS[2], worker)
end
local reply = {'rescued', lost, failed, problems, refused}
if jobs_read > 0 then answer(record, cmsgpack.pack(reply)) end
return reply
