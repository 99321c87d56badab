-- @include clock
-- The places a job can lie in: how to look, to put down and to pick up. See groups.lua for words.
local now = server_time() -- asked at once: a server without a clock must refuse before any write

local function read_target()
  local kind = text()
  local target = {kind = kind}
  if kind == 'gone' or kind == 'stay' then return target end
  target.takes_payload, target.takes_score = true, kind == 'set' or kind == 'later'
  if target.takes_score then target.set = key() end
  if kind == 'set' then
    target.most, target.age = number(), number()
  else
    target.list, target.wake, target.name = key(), key(), text()
  end
  return target
end

local function read_source()
  local source = {kind = text()}
  if source.kind ~= 'none' then source.key = key() end
  if source.kind == 'list' then source.reach = number() end
  return source
end

-- The job's bytes at its source, or nothing. In a list each entry on the way costs some 60 ns.
local function look(source, ref)
  local kind, from, reach = source.kind, source.key, source.reach
  if kind == 'flight' then return redis.call('HGET', from, ref) end
  if kind ~= 'list' then return redis.call('ZSCORE', from, ref) and ref end
  local rank, most = reach < 0 and -1 or 1, math.abs(reach)
  return redis.call('LPOS', from, ref, 'RANK', rank, 'MAXLEN', most) and ref
end

local function remove(source, ref)
  local kind, from = source.kind, source.key
  if kind == 'flight' then return redis.call('HDEL', from, ref) end
  if kind == 'list' then return redis.call('LREM', from, source.reach < 0 and -1 or 1, ref) end
  return redis.call('ZREM', from, ref)
end

-- Errors that speak of the server and not of a key: nothing can be written now, and nothing was.
local NOT_NOW = {READONLY = true, MISCONF = true, NOREPLICAS = true, MASTERDOWN = true}

-- Writes; answers with the error of a damaged key, if any, and lets any other end the script.
local function write(...)
  local reply = redis.pcall(...)
  local problem = type(reply) == 'table' and reply.err
  if problem and NOT_NOW[string.match(problem, '%u+')] then redis.call(...) end
  return problem
end

-- Puts a job down; answers with the error of a damaged key, if any.
local function put(target, payload, score)
  local kind, problem = target.kind
  if score and string.sub(score, 1, 1) == '+' then score = now + tonumber(score) end
  if kind == 'set' or (kind == 'later' and tonumber(score) > now) then
    problem = write('ZADD', target.set, score, payload)
  else
    problem = write(kind == 'front' and 'RPUSH' or 'LPUSH', target.list, payload)
    if not problem then target.queued = (target.queued or 0) + 1 end
  end
  return problem
end

-- Drops what is over `most` entries or older than `age` seconds, a thousand at most in one call.
local function trim(target)
  local over = redis.call('ZCARD', target.set) - target.most
  local old = redis.call('ZCOUNT', target.set, '-inf', now - target.age)
  local drop = math.min(math.max(over, old), 1000)
  if drop > 0 then redis.call('ZREMRANGEBYRANK', target.set, 0, drop - 1) end
end
