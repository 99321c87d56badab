-- @include verbs
-- The verbs that decide whether a job may be moved; a lock's claim does, too (locks.lua).
--   verb     shared           own                does
--   unless   <set>            <member>           refused when the set has the member
--   same     <key>            <field> <value>    refused unless a hash's field has the value
--   advance  <key> <seed>     <field> <number>   raises a hash's field; refused: its value. Seed 1:
--                                                a field that is missing is set, and refused
definitions[#definitions + 1] = function()
  verbs.unless = {
    shared = key,
    own = text,
    check = function(set, member)
      if try('SISMEMBER', set, member) == 1 then return '' end
    end,
  }

  verbs.same = {
    shared = key,
    own = function() return {text(), text()} end,
    check = function(name, own)
      if try('HGET', name, own[1]) ~= own[2] then return '' end
    end,
  }

  verbs.advance = {
    shared = function() return {key(), number()} end,
    own = function() return {text(), text()} end,
    check = function(shared, own)
      local name, field, to = shared[1], own[1], own[2]
      local last = try('HGET', name, field)
      if last == nil then return 'damaged' end -- whoever can't tell what has run runs nothing
      if last and tonumber(string.match(last, '^%d+$') or 0) >= tonumber(to) then return last end
      redis.call('HSET', name, field, to)
      if not last and shared[2] == 1 then return 'seeded' end
      return nil, function()
        if last then redis.call('HSET', name, field, last) else redis.call('HDEL', name, field) end
      end
    end,
  }
end
