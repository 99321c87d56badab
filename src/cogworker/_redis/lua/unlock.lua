-- Frees a lock, whoever holds it.
-- KEYS   1 the lock, 2 this call's record
-- ARGV   1 only when this is its holder; '' for any
-- Reply  '' when nothing was freed | '<milliseconds that were left> <holder>'
-- @include full
-- @include once
local before = answered(KEYS[2])
if before then return before end
begin_although_full('HDEL', KEYS[2])
local left, holder = redis.call('PTTL', KEYS[1]), redis.pcall('GET', KEYS[1])
if type(holder) ~= 'string' then holder = '' end -- it is gone, or damaged
if left == -2 or (ARGV[1] ~= '' and ARGV[1] ~= holder) then return answer(KEYS[2], '') end
redis.call('DEL', KEYS[1])
return answer(KEYS[2], left .. ' ' .. holder)
