-- The server's clock, in epoch seconds: it decides whenever two processes compare times.
local function server_time()
  local time = redis.call('TIME')
  return time[1] + time[2] / 1000000
end
