-- What changes together with a move. An effect is read from ARGV: a verb, then its operands.
--   count <key> <amount>      add to a counter
-- Effects never hold a job hostage: one that fails is noted in `problems`, and the move stands.
local counts, problems = {}, {}

local function note(name, problem)
  if problem then
    problems[#problems + 1] = name
    problems[#problems + 1] = problem
  end
end

local function read_effects()
  local effects = {}
  for i = 1, number() do
    local verb = text()
    if verb == 'count' then
      effects[i] = {verb, key(), number()}
    else
      error('unknown effect ' .. verb)
    end
  end
  return effects
end

-- Counts are summed over the whole call and written once, at its end.
local function apply(effects)
  for i = 1, #effects do
    local effect = effects[i]
    counts[effect[2]] = (counts[effect[2]] or 0) + effect[3]
  end
end

local function write_counts()
  for name, amount in pairs(counts) do
    local reply = redis.pcall('INCRBY', name, amount)
    note(name, type(reply) == 'table' and reply.err)
  end
end
