-- @include verbs
-- @include log
-- The verbs that keep books.
--   verb     shared                                 own             does
--   count    <key> <amount>                                         adds to a counter
--   tally    <key> <ttl> <n> <field> <amount> …                     adds to fields of a hash
--   record   <ttl> <n> drop … <n> field …           <key> <value> … writes a hash
--   append   <most> <ttl>                           <key> <entry>   adds to a list's end
--   log      <key> <most> <age> <entries>                           adds to a stream, see log.lua
--   forget                                          <key>           deletes
-- Times are in seconds. Counts, tallies and logs are summed over the whole call, and written at its
-- end.
local counts, tallies = {}, {}
local function add(sums, name, amount)
  sums[name] = (sums[name] or 0) + amount
end

local function texts()
  local list = {}
  for i = 1, number() do list[i] = text() end
  return list
end

definitions[#definitions + 1] = function()
  verbs.count = {
    shared = function() return {key(), number()} end,
    total = function(shared, jobs) add(counts, shared[1], shared[2] * jobs) end,
  }

  verbs.tally = {
    shared = function() return {key(), number(), texts()} end,
    total = function(shared, jobs)
      local name, fields = shared[1], shared[3]
      tallies[name] = tallies[name] or {ttl = shared[2], sums = {}}
      for i = 1, #fields, 2 do add(tallies[name].sums, fields[i], fields[i + 1] * jobs) end
    end,
  }

  verbs.record = {
    shared = function() return {number(), texts(), texts()} end,
    own = function(shared)
      local name, words = key(), {}
      for i, field in ipairs(shared[3]) do words[2 * i - 1], words[2 * i] = field, text() end
      return {name, words}
    end,
    apply = function(shared, own)
      local name, words = own[1], own[2]
      -- A feature's list of fields is short: never near what unpack can take.
      if #shared[2] > 0 then try('HDEL', name, unpack(shared[2])) end
      if #words > 0 then try('HSET', name, unpack(words)) end
      if shared[1] > 0 then try('EXPIRE', name, shared[1]) end
    end,
  }

  verbs.append = {
    shared = function() return {number(), number()} end,
    own = function() return {key(), text()} end,
    apply = function(shared, own)
      try('RPUSH', own[1], own[2])
      try('LTRIM', own[1], -shared[1], -1)
      try('EXPIRE', own[1], shared[2])
    end,
  }

  verbs.forget = {own = key, apply = function(_, name) try('DEL', name) end}
end

local function write_sums()
  for name, amount in pairs(counts) do try('INCRBY', name, amount) end
  for name, tally in pairs(tallies) do
    for field, amount in pairs(tally.sums) do try('HINCRBY', name, field, amount) end
    try('EXPIRE', name, tally.ttl)
  end
  write_logs()
end
