-- The server's clock, in epoch seconds: it decides whenever two processes compare times. The last
-- word of ARGV is empty, or the caller's clock when the server gives none (see connection.py).
local function server_time()
  local given = ARGV[#ARGV]
  if given ~= '' then return tonumber(given) end
  local time = redis.pcall('TIME')
  if time.err then error('NOCLOCK ' .. time.err) end
  return time[1] + time[2] / 1000000
end
