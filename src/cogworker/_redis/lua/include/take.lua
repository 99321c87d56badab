-- Takes jobs from queues into a worker's in-flight hash. A delivery's tag, the field, is
-- <turn>.<index>.<queue>: unique in its worker, in the order of taking, and enough to give the
-- job back without reading it.
local function put_in_flight(flight, turn, name, jobs, taken)
  local fields = {}
  for i = #jobs, 1, -1 do -- the oldest is the last in the list
    local tag = turn .. '.' .. (#taken / 2 + 1) .. '.' .. name
    taken[#taken + 1], taken[#taken + 2] = tag, jobs[i]
    fields[#fields + 1], fields[#fields + 2] = tag, jobs[i]
  end
  redis.call('HSET', flight, unpack(fields))
end

local function is_paused(name)
  return try('SISMEMBER', KEYS[3], name) == 1
end

local function take(flight, turn)
  local worker, want, taken, paused = text(), number(), {}, {}
  -- Who holds jobs must be known to rescuers, even just after it was rescued itself.
  if want > 0 then redis.call('ZADD', KEYS[5], 'NX', now, worker) end
  for _ = 1, number() do
    local list, bell, name = key(), key(), text()
    local left = want - #taken / 2
    if is_paused(name) then
      paused[#paused + 1] = name
    elseif left > 0 then
      local jobs = redis.pcall('LRANGE', list, -left, -1)
      if jobs.err then
        note(list, jobs.err)
      else
        if #jobs > 0 then
          put_in_flight(flight, turn, name, jobs, taken)
          redis.call('LTRIM', list, 0, -#jobs - 1)
        end
        if #jobs < left then redis.call('DEL', bell) end
      end
    end
  end
  return taken, paused
end

-- What a turn that is sent again took the first time, and still holds, in no order.
local function taken_before(flight, turn)
  local all, taken, prefix = redis.call('HGETALL', flight), {}, turn .. '.'
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, #prefix) == prefix then
      taken[#taken + 1], taken[#taken + 2] = all[i], all[i + 1]
    end
  end
  return taken
end
