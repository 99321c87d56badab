-- @include verbs
-- The verbs that keep a lock with its job.
--   verb     shared           own                does
--   claim    <ttl> <anew>     <key> <owner>      takes a lock; refused: who holds it, with anew 1
--                                                the owner, too
--   hold     <ttl> <take>     <key> <owner>      has the owner's lock last; with take 1 it
--                                                takes a free one, too
--   release                   <key> <owner>      frees the owner's lock
-- A lock is a string, its owner's job id. Who does not own it changes nothing.
local function holder_of(name)
  local holder = redis.pcall('GET', name)
  if type(holder) ~= 'table' then return holder end
  note(name, holder.err)
end

local function key_and_owner() return {key(), text()} end

definitions[#definitions + 1] = function()
  verbs.claim = {
    shared = function() return {number(), number()} end,
    own = key_and_owner,
    check = function(shared, own)
      local name, owner = own[1], own[2]
      local holder = holder_of(name)
      if holder == nil then return end -- a damaged lock locks nothing
      if holder and (holder ~= owner or shared[2] == 1) then return holder end
      redis.call('SET', name, owner, 'EX', shared[1])
      if not holder then return nil, function() redis.call('DEL', name) end end
    end,
  }

  verbs.hold = {
    shared = function() return {number(), number()} end,
    own = key_and_owner,
    apply = function(shared, own)
      local holder = holder_of(own[1])
      if holder == own[2] or (holder == false and shared[2] == 1) then
        redis.call('SET', own[1], own[2], 'EX', shared[1])
      end
    end,
  }

  verbs.release = {
    own = key_and_owner,
    apply = function(_, own)
      if holder_of(own[1]) == own[2] then redis.call('DEL', own[1]) end
    end,
  }
end
