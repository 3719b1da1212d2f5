-- Makes the calls in a file one after the other, from the beginning again at its end: wrk -s calls.lua URL -- FILE
-- A line is the path of a GET, or the path of a POST, a blank and its body. A second argument is the header
-- Authorization. In the end it says whether the file was read to its end.

local calls = {}
local last = 0
local threads = {}

exhausted = 0

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  local headers = { ["Content-Type"] = "application/json", ["Authorization"] = args[2] }
  for line in io.lines(args[1]) do
    local path, body = line:match("^(%S+) ?(.*)$")
    if body == "" then
      calls[#calls + 1] = wrk.format("GET", path)
    else
      calls[#calls + 1] = wrk.format("POST", path, headers, body)
    end
  end
end

function request()
  if last == #calls then
    exhausted = 1
    last = 0
  end
  last = last + 1
  return calls[last]
end

function done(summary, latency, requests)
  local exhausted = 0
  for _, thread in ipairs(threads) do
    exhausted = exhausted + thread:get("exhausted")
  end
  print("Exhausted: " .. exhausted)
end
