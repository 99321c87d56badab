-- @include wake
-- @include items
-- Moves jobs in groups. A group has one source, one target and one list of effects:
--   source   none | flight <hash> | set <zset>
--            | list <list> <reach>: among so many entries from its left end, or, below 0, its right
--   target   gone | stay | front <list> <wake> <name> | back <list> <wake> <name>
--            | set <zset> <most> <age>: most 0 means that it isn't trimmed
--            | later <zset> <list> <wake> <name>: into the set, or into the queue when due already
--   effects  <n>, then n effects
--   items    <n>, then n times: <ref> unless the source is none (the tag, or the payload itself);
--            <payload> for front, back, set and later ('' keeps the bytes as they are); <score> for
--            set and later ('+5' is five seconds from now); then its own words of each effect
local function move_group()
  local source = read_source()
  local target = read_target()
  local effects = read_effects()
  local moved, others = 0, {}
  for i = 1, number() do
    if move_item(source, target, effects) then
      moved = moved + 1
    else
      others[#others + 1] = i
    end
  end
  if moved == 0 then return end
  total(effects, moved, others)
  if target.queued then
    try('SADD', KEYS[1], target.name)
    note(target.wake, wake(target.wake, target.queued))
  end
  if target.most and target.most > 0 then trim(target) end
end

-- KEYS[1] is the set of queue names, in every script that moves.
local function move_groups()
  for _ = 1, number() do move_group() end
  write_sums()
end
