-- How many jobs are in queues, and the oldest one of each.
-- KEYS   the queues
-- ARGV   1 the most bytes of payloads to answer with
-- Reply  {the server's time, size, oldest payload, …}; '' when there is none, when it is too much,
--        and for a key of another type
-- @include clock
local left, reply = tonumber(ARGV[1]), {string.format('%.6f', server_time())}
for i = 1, #KEYS do
  local size, oldest = redis.pcall('LLEN', KEYS[i]), ''
  if type(size) ~= 'number' then size = 0 end
  if size > 0 then oldest = redis.call('LINDEX', KEYS[i], -1) end
  if #oldest > left then oldest = '' end
  left = left - #oldest
  reply[#reply + 1], reply[#reply + 2] = size, oldest
end
return reply
