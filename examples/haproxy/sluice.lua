-- Asks Sluice about requests: see haproxy.cfg.

-- An address and not a name, or HAProxy needs resolvers.
local url = "http://127.0.0.1:8080/v1/auth"
local timeout = 2000 -- ms; more than auth.max_wait

-- What is between HAProxy and the client and no part of the request, and what HAProxy says itself, whatever the client
-- has sent.
local dropped = {}
for _, name in ipairs({
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
    "content-length", "expect", "host", "x-forwarded-method", "x-forwarded-uri", "x-forwarded-host",
}) do
    dropped[name] = true
end

-- lines are the values of a header, which HAProxy counts from 0.
local function lines(values)
    local all = {}
    for i = 0, #values do
        if values[i] ~= nil then all[#all + 1] = values[i] end
    end
    return all
end

-- question is the headers of the request, and what else there is to say about it.
local function question(txn)
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        if not dropped[name] then headers[name] = lines(values) end
    end
    headers["x-forwarded-method"] = { txn.sf:method() }
    headers["x-forwarded-uri"] = { txn.sf:pathq() }
    headers["x-forwarded-host"] = { txn.sf:req_fhdr("host") }
    local from = headers["x-forwarded-for"] or {}
    from[#from + 1] = txn.sf:src()
    headers["x-forwarded-for"] = from
    return headers
end

-- for_client picks the headers of an answer that the client should see.
local function for_client(answer)
    local headers = {}
    for name, values in pairs(answer.headers) do
        if name:find("^x%-ratelimit%-") or name:find("^ratelimit") or name == "retry-after" or name == "content-type"
            or name == "cache-control" or name == "access-control-expose-headers" then
            headers[name] = lines(values)
        end
    end
    return headers
end

-- is_away tells Sluice's own 503, for rules that are closed, from HAProxy's.
local function is_away(answer)
    if not answer or not answer.status or answer.status == 0 then return true end
    if answer.status < 502 or answer.status > 504 then return false end
    local kind = answer.headers["content-type"]
    return not kind or kind[0] ~= "application/problem+json"
end

core.register_action("sluice", { "http-req" }, function(txn)
    local answer = core.httpclient():get({ url = url, headers = question(txn), timeout = timeout })
    if is_away(answer) then return end
    local headers = for_client(answer)
    if answer.status == 204 then
        txn:set_var("txn.sluice_passed", true)
        headers["cache-control"] = nil -- that of the question
        txn:set_priv(headers)
        return
    end
    local reply = txn:reply({ status = answer.status, body = answer.body })
    for name, values in pairs(headers) do
        for _, value in ipairs(values) do reply:add_header(name, value) end
    end
    txn:done(reply)
end)

core.register_action("sluice_headers", { "http-res" }, function(txn)
    for name, values in pairs(txn:get_priv() or {}) do
        for _, value in ipairs(values) do txn.http:res_add_header(name, value) end
    end
end)
