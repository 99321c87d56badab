-- Tokens in a queue's wake-up list, on which idle workers block. There are never more than
-- MOST_TOKENS: a worker that finds its queue empty deletes them all, and one that misses a token
-- looks anyway within fetch_idle_max_interval. A list that can't be used holds up no job.
local MOST_TOKENS = 64

local function wake(list, jobs)
  local waiting = redis.pcall('LLEN', list)
  if type(waiting) ~= 'number' then return waiting.err end
  local tokens = {}
  for i = 1, math.min(jobs, MOST_TOKENS - waiting) do tokens[i] = '1' end
  if #tokens > 0 then redis.pcall('LPUSH', list, unpack(tokens)) end
end
