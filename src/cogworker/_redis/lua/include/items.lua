-- @include places
-- @include books
-- @include locks
-- @include conditions
-- @include effects
-- Moves one job, and applies its effects.
-- A job that is no longer at its source is `lost`: nothing is done for it. One whose effects refuse
-- it is `refused`: it stays where it is. One that can't be put down has `failed`, and stays, too. A
-- job is put down before it is picked up, because the server keeps what a script wrote before it
-- died. A job is called by its ref, or, new, by its number in the call.
-- Of the lost, `lost_stays` were to stay: those a call that is sent again has not moved itself.
local lost, lost_stays, failed, refused = {}, {}, {}, {}
local jobs_read, jobs_left_early = 0, 0

local function lose(ref, kind)
  lost[#lost + 1] = ref
  if kind == 'stay' then
    lost_stays[#lost_stays + 1] = ref
  else
    jobs_left_early = jobs_left_early + 1
  end
  return false
end

local function called(ref)
  return ref or tostring(jobs_read)
end

local function refuse(ref, verb, why)
  local n = #refused
  refused[n + 1], refused[n + 2], refused[n + 3] = called(ref), verb, why
  return false
end

-- Puts a job down and picks it up; answers whether that went well.
local function transfer(source, ref, target, payload, score)
  if target.kind == 'stay' then return true end
  if target.kind == 'gone' then return not ref or remove(source, ref) == 1 end
  local problem = put(target, payload, score)
  if problem then
    failed[#failed + 1], failed[#failed + 2] = called(ref), problem
    return false
  end
  -- Moved within one set without a change, it has only got another score.
  if ref and not (source.key == target.set and payload == ref) then remove(source, ref) end
  return true
end

local function move_item(source, target, effects)
  jobs_read = jobs_read + 1
  local ref = source.key and text()
  local payload = target.takes_payload and text()
  local score = target.takes_score and text()
  local own, undo = effects.own and read_own(effects), nil
  -- What only goes isn't looked at, but for the bounds of looking for it in a list.
  local unread = target.kind == 'gone' and not effects.check and not source.reach
  local here = not ref or (unread and '') or look(source, ref)
  if not here then return lose(ref, target.kind) end
  if effects.check then
    local verb, why
    undo, verb, why = check(effects, own)
    if not undo then return refuse(ref, verb, why) end
  end
  if payload == '' then payload = here end
  if not transfer(source, ref, target, payload, score) then
    if unread then return lose(ref, target.kind) end
    if undo then take_back(undo) end
    return false
  end
  if effects.apply then apply(effects, own) end
  return true
end
