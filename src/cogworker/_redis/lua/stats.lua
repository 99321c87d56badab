-- Counts what is there.
-- KEYS   1 processed, 2 failed, 3 discarded, 4 lost claims, 5 schedule, 6 retry, 7 dead; then
--        queues; then in-flight hashes
-- ARGV   1 the number of queues
-- Reply  {processed, failed, discarded, lost claims, enqueued, in flight, scheduled, retrying,
--        dead}
local function count(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and 0 or tonumber(reply or 0) or 0
end

local enqueued, in_flight, queues = 0, 0, tonumber(ARGV[1])
for i = 8, 7 + queues do enqueued = enqueued + count('LLEN', KEYS[i]) end
for i = 8 + queues, #KEYS do
  in_flight = in_flight + count('HLEN', KEYS[i]) - count('HEXISTS', KEYS[i], '@turn')
end
return {
  count('GET', KEYS[1]), count('GET', KEYS[2]), count('GET', KEYS[3]), count('GET', KEYS[4]),
  enqueued, in_flight, count('ZCARD', KEYS[5]), count('ZCARD', KEYS[6]), count('ZCARD', KEYS[7])
}
