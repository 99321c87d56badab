-- The time by which everything here goes.
-- Reply  epoch seconds
-- @include clock
return string.format('%.6f', server_time())
