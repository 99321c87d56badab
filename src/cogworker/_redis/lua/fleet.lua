-- What workers say of themselves, what they were told last, and how many jobs they hold.
-- KEYS   of each worker: presence, in-flight hash, orders
-- Reply  of each worker {info, busy, quiet, jobs held, order, who gave it, when}; '' for what is
--        not there, and for a key of another type
local function fields_of(key, ...)
  local reply = redis.pcall('HMGET', key, ...)
  for i = 1, select('#', ...) do reply[i] = reply[i] or '' end
  return reply
end

local function held_in(key)
  local size = redis.pcall('HLEN', key)
  if type(size) ~= 'number' then return 0 end
  return size - redis.call('HEXISTS', key, '@turn')
end

local fleet = {}
for i = 1, #KEYS, 3 do
  local said = fields_of(KEYS[i], 'info', 'busy', 'quiet')
  local told = fields_of(KEYS[i + 2], 'order', 'by', 'at')
  fleet[#fleet + 1] = {
    said[1], said[2], said[3], held_in(KEYS[i + 1]), told[1], told[2], told[3]
  }
end
return fleet
