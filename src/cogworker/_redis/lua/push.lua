-- Puts new jobs into queues and the schedule, once, however often it is sent.
-- A producer numbers its pushes. The record of the last one answers a push that is sent again
-- because its reply was lost, and fences one that arrives late from a dead connection.
-- KEYS   1 queues, 2 the producer's record; the others are named by the groups
-- ARGV   <number> <first jid> <seconds to keep the record> <n> groups with source none
-- Reply  {'pushed', failed {payload, error, …}, problems} | {'repeated'} | {'collision'}
-- @include input
-- @include groups
local turn, jid, keep = number(), text(), text()
local record = redis.call('GET', KEYS[2])
if record then
  local last, first = string.match(record, '^(%d+) (.*)$')
  last = tonumber(last) or 0
  if last == turn and first == jid then return {'repeated'} end
  -- Two producers share this lane, as copies of a process do: each push must stay its own.
  if last >= turn then return {'collision'} end
end
move_groups()
if #failed == 0 then redis.call('SET', KEYS[2], turn .. ' ' .. jid, 'EX', keep) end
return {'pushed', failed, problems}
