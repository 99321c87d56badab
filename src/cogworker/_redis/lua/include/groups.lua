-- @include places
-- @include wake
-- @include effects
-- Moves jobs in groups. A group has one source, one target and one list of effects:
--   source   none | flight <hash> | set <zset>
--   target   gone | front <list> <wake> <name> | back <list> <wake> <name>
--            | set <zset> <most> <age>: most 0 means that it isn't trimmed
--            | later <zset> <list> <wake> <name>: into the set, or into the queue when due already
--   effects  <n>, then n effects
--   items    <n>, then n times: <ref> unless the source is none (the tag or the member); <payload>
--            unless the target is gone ('' keeps the bytes as they are); <score> for set and later
--            ('+5' is five seconds from now)
-- A job that is no longer at its source is `lost`: nothing is done for it. One that can't be put
-- down has `failed`: it stays where it is. A job is put down before it is picked up, because the
-- server keeps what a script wrote before it died.
local lost, failed = {}, {}

local function move_item(source, from, target)
  local kind = target.kind
  local ref = source ~= 'none' and text()
  if kind == 'gone' then
    if remove(source, from, ref) == 1 then return true end
    lost[#lost + 1] = ref
    return false
  end
  local payload = text()
  local score = (kind == 'set' or kind == 'later') and text()
  local here = not ref or look(source, from, ref)
  if not here then
    lost[#lost + 1] = ref
    return false
  end
  if payload == '' then payload = here end
  local refused = put(target, payload, score)
  if refused then
    failed[#failed + 1] = ref or payload
    failed[#failed + 1] = refused
    return false
  end
  -- Moved within one set without a change, it has only got another score.
  if ref and not (from == target.set and payload == ref) then remove(source, from, ref) end
  return true
end

local function move_group()
  local source = text()
  local from = source ~= 'none' and key()
  local target = read_target()
  local effects = read_effects()
  local moved = 0
  for _ = 1, number() do
    if move_item(source, from, target) then
      moved = moved + 1
      apply(effects)
    end
  end
  if target.queued then
    local listed = redis.pcall('SADD', KEYS[1], target.name)
    note(KEYS[1], type(listed) == 'table' and listed.err)
    note(target.wake, wake(target.wake, target.queued))
  end
  if moved > 0 and target.most and target.most > 0 then trim(target) end
end

-- KEYS[1] is the set of queue names, in every script that moves.
local function move_groups()
  for _ = 1, number() do move_group() end
  write_counts()
end
