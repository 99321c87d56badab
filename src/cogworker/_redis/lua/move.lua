-- Moves jobs without taking any.
-- KEYS   1 queues; the others are named by the groups
-- ARGV   <n> groups (include/groups.lua)
-- Reply  {lost refs, failed {ref, error, …}, problems {key, error, …}, refused {ref, verb, why, …}}
-- @include input
-- @include groups
-- @include full
begin_although_full('SREM', KEYS[1])
move_groups()
return {lost, failed, problems, refused}
