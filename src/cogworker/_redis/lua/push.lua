-- Puts new jobs into queues and the schedule, once, however often it is sent.
-- A producer numbers its pushes. The record of the last one answers a push that is sent again
-- because its reply was lost, and fences one that arrives late from a dead connection.
-- KEYS   1 queues, 2 the producer's record; the others are named by the groups
-- ARGV   <number> <first jid> <seconds to keep the record> <n> groups with source none
-- Reply  {'pushed', failed {number, error, …}, refused {number, verb, why, …}, problems}
--        | {'repeated', failed, refused} | {'collision'}
-- @include input
-- @include groups
local turn, jid, keep = number(), text(), text()
local record = redis.call('GET', KEYS[2])
local known, last, first, kept_failed, kept_refused = pcall(cmsgpack.unpack, record or '')
if record and known then
  if last == turn and first == jid then return {'repeated', kept_failed, kept_refused} end
  -- Two producers share this lane, as copies of a process do: each push must stay its own.
  if last >= turn then return {'collision'} end
end
move_groups()
-- A full server, which has taken no job, takes no record either; then there is none to add twice.
local set = #failed == 0 and redis.call or redis.pcall
set('SET', KEYS[2], cmsgpack.pack(turn, jid, failed, refused), 'EX', keep)
return {'pushed', failed, refused, problems}
