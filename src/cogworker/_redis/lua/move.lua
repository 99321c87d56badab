-- Moves jobs without taking any.
-- KEYS   1 queues; the others are named by the groups
-- ARGV   <this call's record, or 0> <n> groups (include/groups.lua)
-- Reply  {lost refs, failed {ref, error, …}, problems {key, error, …}, refused {ref, verb, why, …}}
-- With a record, sent again, it answers as the first time; without, those that were moved are lost.
-- @include input
-- @include groups
-- @include once
-- @include full
local record = key()
local before = record and answered(record)
if before then return cmsgpack.unpack(before) end
begin_although_full('SREM', KEYS[1])
move_groups()
local reply = {lost, failed, problems, refused}
if record then answer(record, cmsgpack.pack(reply)) end
return reply
