-- @include verbs
-- The effects of a group: read with its header; for each job checked before it moves, and applied
-- when it was; summed up at the end.
local function read_effects()
  local effects = {}
  for i = 1, number() do
    local name = text()
    local verb = verb_named(name)
    effects[i] = {name = name, verb = verb, shared = verb.shared and verb.shared()}
    effects.own = effects.own or verb.own
    effects.check = effects.check or verb.check
    effects.apply = effects.apply or verb.apply
  end
  return effects
end

local function read_own(effects)
  local own = {}
  for i, effect in ipairs(effects) do
    if effect.verb.own then own[i] = effect.verb.own(effect.shared) end
  end
  return own
end

local function take_back(undo)
  for i = #undo, 1, -1 do undo[i]() end
end

-- Answers with what takes the conditions back; or with nothing, the verb that refused, and why:
-- then locks are taken back, and what else was met stands.
local function check(effects, own)
  local undo, locks = {}, {}
  for i, effect in ipairs(effects) do
    if effect.verb.check then
      local why, back = effect.verb.check(effect.shared, own[i])
      if why then return take_back(locks), effect.name, why end
      undo[#undo + 1] = back
      if effect.name == 'claim' then locks[#locks + 1] = back end
    end
  end
  return undo
end

local function apply(effects, own)
  for i, effect in ipairs(effects) do
    if effect.verb.apply then effect.verb.apply(effect.shared, own[i]) end
  end
end

local function total(effects, jobs, others)
  for _, effect in ipairs(effects) do
    if effect.verb.total then effect.verb.total(effect.shared, jobs, others) end
  end
end
