-- Looks through a part of a place for jobs, from where the last look ended: a thousand entries, a
-- megabyte, or until it has found enough.
-- KEYS   1 the place
-- ARGV   newest (a list from its left end) | rising | falling (a set, by score), the most to find,
--        <position> <last> where the last look ended, at first '' and '', <n> texts to have
-- Reply  {1 when there is more or 0, <position>, <last>, {entry, where, …}}
-- Of a set, position and last are the score and the entry looked at last, and where is a score. Of
-- a list they are how many entries from its right end were left, whatever is pushed and taken
-- meanwhile, and the last one's digest. Where is the distance from the left end, or, below 0, from
-- the right end, whichever is nearer.
-- @include finding
local OVERLAP = 20
local place, order, limit, from, last = KEYS[1], text(), number(), text(), text()
local texts = read_texts()

-- How many entries are left. Jobs that came back to the right end have moved the others on.
local function left_of_list(size)
  if from == '' then return size end
  local left = math.min(tonumber(from), size)
  local before = redis.call('LRANGE', place, -left - OVERLAP, -left - 1)
  for i, entry in ipairs(before) do
    if redis.sha1hex(entry) == last then return left + #before - i end
  end
  return left
end

local function look_through_list()
  local size = redis.call('LLEN', place)
  local left = left_of_list(size)
  while left > 0 do
    local page = redis.call('LRANGE', place, -left, math.min(step() - left, 0) - 1)
    for _, entry in ipairs(page) do
      local where = left > size / 2 and size - left + 1 or -left
      left = left - 1
      local enough = look_at(entry, where, texts, limit)
      if enough and left > 0 then return 1, left, redis.sha1hex(entry) end
    end
  end
  return 0, '', ''
end

-- Where to go on. Where the last entry is gone, all of its score are looked at again.
local function rank_in_set()
  if from == '' then return 0 end
  if redis.call('ZSCORE', place, last) == from then
    return redis.call(order == 'rising' and 'ZRANK' or 'ZREVRANK', place, last) + 1
  end
  if order == 'rising' then return redis.call('ZCOUNT', place, '-inf', '(' .. from) end
  return redis.call('ZCOUNT', place, '(' .. from, '+inf')
end

local function look_through_set()
  local rank, range = rank_in_set(), order == 'rising' and 'ZRANGE' or 'ZREVRANGE'
  while true do
    local count = step()
    local page = redis.call(range, place, rank, rank + count - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      if look_at(page[i], page[i + 1], texts, limit) then return 1, page[i + 1], page[i] end
    end
    if #page < 2 * count then return 0, '', '' end
    rank = rank + count
  end
end

local look = order == 'newest' and look_through_list or look_through_set
local more, at, ended = look()
return {more, at, ended, found}
