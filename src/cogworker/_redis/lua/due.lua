-- Reads what is due, oldest first, without moving it.
-- KEYS   1 workers; then the sets to read, scored by due time
-- ARGV   1 the most entries to read of each
-- Reply  {the server's time, seconds until the next entry or '', number of workers,
--        entries of the first set, …}
-- @include clock
local time, next_due = server_time(), nil
local reply = {string.format('%.6f', time), '', redis.call('ZCARD', KEYS[1])}
for i = 2, #KEYS do
  reply[i + 2] = redis.call('ZRANGEBYSCORE', KEYS[i], '-inf', time, 'LIMIT', 0, ARGV[1])
  local first = redis.call('ZRANGEBYSCORE', KEYS[i], '(' .. string.format('%.17g', time), '+inf',
                           'WITHSCORES', 'LIMIT', 0, 1)[2]
  if first and (not next_due or tonumber(first) < next_due) then next_due = tonumber(first) end
end
if next_due then reply[2] = string.format('%.6f', next_due - time) end
return reply
