-- Moves a key of the wrong type aside, so that work goes on without what it holds. The names aside
-- are few, and used in turn: a mess that somebody makes again and again does not fill the server.
-- KEYS   1 the key; then the names aside
-- ARGV   1 the type it should have, 2 seconds to keep it
-- Reply  {} | {the type it had, the name it got}
local found = redis.call('TYPE', KEYS[1]).ok
if found == 'none' or found == ARGV[1] then return {} end
local aside, shortest
for i = 2, #KEYS do
  local left = redis.call('PTTL', KEYS[i]) -- -2 when the name is free
  if left == -1 then left = math.huge end -- somebody wants to keep that one
  if not shortest or left < shortest then aside, shortest = KEYS[i], left end
end
redis.call('UNLINK', aside)
redis.call('RENAME', KEYS[1], aside)
redis.call('EXPIRE', aside, ARGV[2])
return {found, aside}
