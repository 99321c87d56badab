-- What changes together with a move: a closed set of verbs (in books, locks and conditions.lua). A
-- verb has operands that all jobs of its group share, read with the group's header, and own ones,
-- read with each job, moved or not. It is a table of functions, each of them optional:
--   shared()             reads the shared operands
--   own(shared)          reads a job's own operands
--   check(shared, own)   a condition: carries it out, or answers why the job must not be moved; the
--                        second answer takes back what it has carried out
--   apply(shared, own)   once for each job that is moved
--   total(shared, jobs, others)  once for the jobs of a group that were moved; `others` are the
--                        places in the group of those that were not
-- Effects never hold a job hostage: one that fails is noted in `problems`, and the move stands.
local definitions, problems = {}, {}
local verbs

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

-- To define the verbs takes as long as to push a job: it is left to the first call for one.
local function verb_named(name)
  if not verbs then
    verbs = {}
    for _, define in ipairs(definitions) do define() end
  end
  return verbs[name] or error('unknown effect ' .. name)
end
