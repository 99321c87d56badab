-- Says who holds locks, and for how long.
-- KEYS   the locks
-- Reply  {holder, milliseconds left, …}; for one that is gone, or damaged, the holder is ''; -2
--        milliseconds are left of one that is gone, -1 of one that stays for ever
local reply = {}
for i, name in ipairs(KEYS) do
  local holder = redis.pcall('GET', name)
  reply[2 * i - 1] = type(holder) == 'string' and holder or ''
  reply[2 * i] = redis.call('PTTL', name)
end
return reply
