-- Posts the lines of a file one after the other and counts the answers: wrk -s bodies.lua URL -- FILE
-- With "again" as a second argument it begins again at the end of the file; without it, reaching the end is an error.
-- A third argument is a bearer token.

local posts = {}
local last = 0
local again = false
local threads = {}

exhausted = 0
accepted = 0
refusal = ""

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  again = args[2] == "again"
  for body in io.lines(args[1]) do
    local headers = { ["Content-Type"] = "application/json" }
    if args[3] then
      headers["Authorization"] = "Bearer " .. args[3]
    end
    posts[#posts + 1] = wrk.format("POST", nil, headers, body)
  end
end

function request()
  last = last + 1
  if last > #posts then
    if not again then
      exhausted = 1
    end
    last = 1
  end
  return posts[last]
end

function response(status, headers, body)
  if status == 201 or status == 200 and body:find('"accepted"', 1, true) then
    accepted = accepted + 1
  elseif refusal == "" then
    refusal = status .. " " .. body
  end
end

function done(summary, latency, requests)
  local accepted, exhausted = 0, 0
  for _, thread in ipairs(threads) do
    accepted = accepted + thread:get("accepted")
    exhausted = exhausted + thread:get("exhausted")
    print("Refusal: " .. thread:get("refusal"))
  end
  print("Accepted: " .. accepted)
  print("Exhausted: " .. exhausted)
end
