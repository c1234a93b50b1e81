-- Forward authentication with Sluice: see haproxy.cfg.

-- An IP address, because HAProxy needs resolvers for a name.
local url = "http://127.0.0.1:8080/v1/auth"
local timeout = 2000 -- ms; more than forward_auth.max_delay

-- Hop-by-hop headers, and headers that HAProxy sets itself and a client must not set.
local dropped = {}
for _, name in ipairs({
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
    "content-length", "expect", "host", "x-forwarded-method", "x-forwarded-uri", "x-forwarded-host",
}) do
    dropped[name] = true
end

-- lines returns the values of a header as a list. HAProxy's values start at index 0.
local function lines(values)
    local all = {}
    for i = 0, #values do
        if values[i] ~= nil then all[#all + 1] = values[i] end
    end
    return all
end

-- check_headers returns the headers of the subrequest: those of the request, and its method, URI, host and peer.
local function check_headers(txn)
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

-- for_client returns the headers of Sluice's response that are sent to the client.
local function for_client(response)
    local headers = {}
    for name, values in pairs(response.headers) do
        if name:find("^x%-ratelimit%-") or name:find("^ratelimit") or name == "retry-after" or name == "content-type"
            or name == "cache-control" or name == "access-control-expose-headers" then
            headers[name] = lines(values)
        end
    end
    return headers
end

-- is_unavailable reports whether Sluice did not respond. A 503 with a problem body is Sluice's own, for rules that fail
-- closed.
local function is_unavailable(response)
    if not response or not response.status or response.status == 0 then return true end
    if response.status < 502 or response.status > 504 then return false end
    local kind = response.headers["content-type"]
    return not kind or kind[0] ~= "application/problem+json"
end

core.register_action("sluice", { "http-req" }, function(txn)
    local response = core.httpclient():get({ url = url, headers = check_headers(txn), timeout = timeout })
    if is_unavailable(response) then return end
    local headers = for_client(response)
    if response.status == 204 then
        txn:set_var("txn.sluice_allowed", true)
        headers["cache-control"] = nil -- of the subrequest
        txn:set_priv(headers)
        return
    end
    local reply = txn:reply({ status = response.status, body = response.body })
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
