-- A worker's turn: settles the deliveries that ended and takes jobs for its free slots.
-- A turn has a number. The last one's is kept in the field @turn of the in-flight hash, so a turn
-- whose reply was lost is answered again with the jobs it took, and one that arrives late from a
-- dead connection takes nothing. The field also says how the worker fetches, for its rescuers.
-- KEYS   1 queues, 2 in-flight hash, 3 paused queues, 4 count of lost claims, 5 workers; the others
--        are named by the groups and the queues to take from
-- ARGV   <number> <reliable|basic> <n> groups <identity> <want> <n> queues, each <list> <wake>
--        <name>, in the order to look
-- Reply  {lost tags, failed {tag, error, …}, problems {key, error, …}, refused {tag, verb, why, …},
--        taken {tag, payload, …}, paused names}, with 'again' at its end when the turn is
--        repeated | {'stale', last}
-- @include input
-- @include groups
-- @include take
-- @include full
local flight, turn, fetch = KEYS[2], number(), text()
local last = tonumber(string.match(redis.call('HGET', flight, '@turn') or '', '^%d+') or 0)
if turn < last then return {'stale', last} end

begin_although_full('HDEL', flight)
redis.call('HSET', flight, '@turn', turn .. ' ' .. fetch)
redis.call('PERSIST', flight) -- a rescue lets what is left of it expire
move_groups()
if turn == last then -- what is gone was settled the first time, not lost, unless it was to stay
  return {lost_stays, failed, problems, refused, taken_before(flight, turn), {}, 'again'}
end
if jobs_left_early > 0 then redis.pcall('INCRBY', KEYS[4], jobs_left_early) end
local taken, paused = take(flight, turn)
return {lost, failed, problems, refused, taken, paused}
