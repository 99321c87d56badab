-- Reads the jobs that workers hold, to look at.
-- KEYS   of each worker: in-flight hash, presence
-- ARGV   1 the most bytes of payloads to answer with
-- Reply  of each worker {which deliveries run since when, tag, payload, …}; '' for a payload
--        that would be too much
local left, fleet = tonumber(ARGV[1]), {}
for i = 1, #KEYS, 2 do
  local began = redis.pcall('HGET', KEYS[i + 1], 'began')
  local jobs, tags = {type(began) == 'string' and began or ''}, redis.pcall('HKEYS', KEYS[i])
  for _, tag in ipairs(tags) do
    if tag ~= '@turn' then
      local size = redis.call('HSTRLEN', KEYS[i], tag)
      jobs[#jobs + 1], jobs[#jobs + 2] = tag, ''
      if size <= left then
        jobs[#jobs] = redis.call('HGET', KEYS[i], tag)
        left = left - size
      end
    end
  end
  fleet[#fleet + 1] = jobs
end
return fleet
