-- Requests the paths in a file one after the other: wrk -s paths.lua URL -- FILE

local paths = {}
local last = 0

function init(args)
  for path in io.lines(args[1]) do
    paths[#paths + 1] = wrk.format("GET", path)
  end
end

function request()
  last = last % #paths + 1
  return paths[last]
end
