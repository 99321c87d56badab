-- What changes together with a move: a closed set of verbs (books.lua, conditions.lua). A verb has
-- operands that all jobs of its group share, read with the group's header, and own ones, read with
-- each job, moved or not. It is a table of functions, each of them optional:
--   shared()             reads the shared operands
--   own(shared)          reads a job's own operands
--   check(shared, own)   a condition: carries it out, or answers why the job must not be moved; the
--                        second answer takes back what it has carried out
--   apply(shared, own)   once for each job that is moved
--   total(shared, jobs, others)  once for the jobs of a group that were moved; `others` are the
--                        places in the group of those that were not
-- Effects never hold a job hostage: one that fails is noted in `problems`, and the move stands.
local verbs, problems = {}, {}

local function note(name, problem)
  if problem then
    problems[#problems + 1] = name
    problems[#problems + 1] = problem
  end
end

-- Like redis.pcall, but an error is noted against the key, and the answer is nil then.
local function try(command, name, ...)
  local reply = redis.pcall(command, name, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  note(name, reply.err)
end

local function read_effects()
  local effects = {}
  for i = 1, number() do
    local name = text()
    local verb = verbs[name] or error('unknown effect ' .. name)
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
