-- Reads fields of hashes, or all fields.
-- KEYS   the hashes
-- ARGV   <n>, then n fields; 0: all
-- Reply  for each hash {value, …}, or {field, value, …} for all; empty for a key that is no hash
local fields = {}
for i = 2, 1 + ARGV[1] do fields[i - 1] = ARGV[i] end
local hashes = {}
for i = 1, #KEYS do
  local reply
  if #fields > 0 then
    reply = redis.pcall('HMGET', KEYS[i], unpack(fields))
  else
    reply = redis.pcall('HGETALL', KEYS[i])
  end
  hashes[i] = reply.err and {} or reply
end
return hashes
