-- Moves jobs that no worker holds: promote, and everything a person asks for.
-- KEYS   1 queues; the others are named by the groups
-- ARGV   <n> groups (include/groups.lua)
-- Reply  {lost refs, failed {ref, error, …}, problems {key, error, …}}
-- @include input
-- @include groups
move_groups()
return {lost, failed, problems}
