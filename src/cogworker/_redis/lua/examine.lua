-- Reads the jobs that a dead worker held, without moving them.
-- KEYS   1 workers, 2 presence, 3 in-flight hash
-- ARGV   1 identity, 2 threshold in seconds, or '' when the worker itself asks
-- Reply  {'alive'} | {'dead', how it fetched, tag, payload, …}
-- @include dead
if ARGV[2] ~= '' and not is_dead(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])) then
  return {'alive'}
end
local all, reply = redis.call('HGETALL', KEYS[3]), {'dead', 'reliable'}
for i = 1, #all, 2 do
  if all[i] == '@turn' then
    reply[2] = string.match(all[i + 1], '%a+') or 'reliable'
  else
    reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
  end
end
return reply
