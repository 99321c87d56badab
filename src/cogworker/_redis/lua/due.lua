-- Reads what is due, oldest first, without moving it.
-- KEYS   1 workers; then the sets to read, scored by due time
-- ARGV   1 the most entries to read of each, 2 the bytes after which to stop reading
-- Reply  {the server's time, seconds until the next entry or '', number of workers, 1 when there
--        may be more or 0, problems {key, error, …}, entries of the first set, …}
-- @include clock
local STEP = 20 -- entries may be large: a few at a time
local time = server_time()
local next_due, more, problems = nil, 0, {}

local function read(set)
  local entries, bytes, most = {}, 0, tonumber(ARGV[1])
  while #entries < most and bytes < tonumber(ARGV[2]) do
    local count = math.min(STEP, most - #entries)
    local page = redis.pcall('ZRANGEBYSCORE', set, '-inf', time, 'LIMIT', #entries, count)
    if page.err then
      problems[#problems + 1], problems[#problems + 2] = set, page.err
      return entries
    end
    for _, entry in ipairs(page) do
      entries[#entries + 1] = entry
      bytes = bytes + #entry
    end
    if #page < count then return entries end
  end
  more = 1
  return entries
end

local function note_next(set)
  local first = redis.pcall('ZRANGEBYSCORE', set, '(' .. string.format('%.17g', time), '+inf',
                            'WITHSCORES', 'LIMIT', 0, 1)[2]
  if first and (not next_due or tonumber(first) < next_due) then next_due = tonumber(first) end
end

local reply = {string.format('%.6f', time), '', redis.call('ZCARD', KEYS[1])}
for i = 2, #KEYS do
  reply[i + 4] = read(KEYS[i])
  note_next(KEYS[i])
end
reply[4], reply[5] = more, problems
if next_due then reply[2] = string.format('%.6f', next_due - time) end
return reply
