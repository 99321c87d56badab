-- Moves jobs that no worker holds: promotes and postpones them.
-- KEYS   1 queues; the others are named by the groups
-- ARGV   <n> groups (include/groups.lua)
-- Reply  {lost refs, failed {ref, error, …}, problems {key, error, …}}
-- @include input
-- @include groups
-- @include full
begin_although_full('SREM', KEYS[1])
move_groups()
return {lost, failed, problems}
