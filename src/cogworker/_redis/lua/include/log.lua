-- @include places
-- @include verbs
-- The verb that logs. What all jobs of a call have to say goes into one entry of a stream, because
-- an entry for each job would cost more than all the rest of its move; what the jobs of a group say
-- comes as one list. An entry's fields are
--   <n>         what the n-th group of jobs says, a JSON list
--   <n> but     the places in that list of those that were not moved, and say nothing after all
-- Its id is <milliseconds>-<number>, where the number is that of all jobs logged so far: so the ids
-- at both ends tell how many jobs are in a stream. It is kept to about so many, no older than about
-- so much, and expires when nothing is added.
local MOST_BYTES = 65536 -- an entry that is larger than that gets no more
local logs = {}

-- The time and the number in the id of the first entry that a range finds; zeros without one.
local function end_of(command, name, from, to)
  local found = try(command, name, from, to, 'COUNT', 1)
  if not found then return end
  local ms, count = string.match(found[1] and found[1][1] or '0-0', '(%d+)-(%d+)')
  return tonumber(ms), tonumber(count)
end

-- Drops the oldest entries as long as those after them are enough. How many that is, is estimated,
-- as if all were as large, a few times.
local function shorten(name, most, count)
  for _ = 1, 4 do
    local _, first = end_of('XRANGE', name, '-', '+')
    local later = count - first
    if later < most then return end
    local length = try('XLEN', name)
    local drop = 1 + math.floor((later - most) * (length - 1) / later)
    try('XTRIM', name, 'MAXLEN', length - math.min(drop, 250))
  end
end

local function write_log(name, log)
  local ms, count = end_of('XREVRANGE', name, '+', '-')
  if not ms then return end
  ms, count = math.max(ms, math.floor(now * 1000)), count + log.jobs
  local id = string.format('%.0f-%.0f', ms, count)
  if not try('XADD', name, id, unpack(log.words)) then return end
  try('XTRIM', name, 'MINID', '~', string.format('%.0f', math.max(0, now - log.age) * 1000))
  shorten(name, log.most, count)
  try('EXPIRE', name, log.age)
end

definitions[#definitions + 1] = function()
  verbs.log = {
    shared = function() return {key(), number(), number(), text()} end,
    total = function(shared, jobs, others)
      local name, entries = shared[1], shared[4]
      local log = logs[name] or {jobs = 0, groups = 0, bytes = 0, words = {}}
      local words, group = log.words, log.groups + 1
      words[#words + 1], words[#words + 2] = group, entries
      if #others > 0 then
        words[#words + 1], words[#words + 2] = group .. ' but', table.concat(others, ' ')
      end
      log.jobs, log.groups, log.bytes = log.jobs + jobs, group, log.bytes + #entries
      log.most, log.age, logs[name] = shared[2], shared[3], log
      if log.bytes > MOST_BYTES or group == 1000 then
        write_log(name, log)
        logs[name] = nil
      end
    end,
  }
end

local function write_logs()
  for name, log in pairs(logs) do write_log(name, log) end
end
