package schematest

import "slices"

// meaning is a class of errors of reading that a schema cannot express. The schema must find every other error.
type meaning struct {
	why     string
	pattern string // pattern of the messages, without position and rule
	with    string // text that the document must contain; "" means any
}

// duplicateKey is the first class of all formats. A validator sees one of the values and reading another, so that
// documents of this class may have any errors.
var duplicateKey = meaning{why: "an object of JSON has a key once; editors mark the second by themselves", pattern: `duplicate key .*, first at line `}

// yamlMeanings are errors about YAML that are lost in the JSON that a validator sees.
var yamlMeanings = []meaning{
	duplicateKey,
	{why: "keys of JSON are always texts", pattern: `config error, key is not of type string|the key .* is not text|merge keys|cannot be a key`},
	{why: "1_000, 0x10, 010, +1, 1.0 and 1e3 are whole numbers to a validator", pattern: ` is (0[xo]?[0-9a-f_]+|\+[0-9]+|-0|[0-9_]+|[0-9]+\.0*|[0-9]+e\+?[0-9]+): write a (whole number|status|number)`},
}

var booleanMeanings = []meaning{
	{why: "True is true to a validator", pattern: `is (True|TRUE|False|FALSE): write true or false`},
}

// textMeanings are texts whose grammar a pattern would have to repeat at length.
var textMeanings = []meaning{
	{why: "the numbers of an address, and the length of a prefix", pattern: `"[0-9a-fA-F:.]+(/[0-9]{1,3})?" (is not an address or a prefix|has bits set after)|^ip: is "[0-9a-fA-F:.]+(%.*)?": write an address`},
}

// limitMeanings are about the numbers of limits.
var limitMeanings = []meaning{
	{why: "numbers that must fit each other", pattern: `takes more than 100 years to refill|holds at most 10000|is more than 10 million a second`},
	{why: "durations are sums of parts", pattern: `is not between 1ms and 366 days|is not a whole number of microseconds|is "[^"]+", which is too long`},
}

var ruleMeanings = slices.Concat(yamlMeanings, booleanMeanings, textMeanings, limitMeanings, []meaning{
	{why: "the same of other numbers", pattern: `^version: is (0|\+|1[.e])|^match: path "\.|"\.[a-z0-9]+" has an empty name|"[0-9]+\." has an empty name`},
	{why: "a reference to something that is declared elsewhere", pattern: `: there is no (attribute|list) |has no values: add one|needs a path with \{|^[a-z]+: the path .* has no \{`},
	{why: "a value of a list that is declared elsewhere", pattern: `^match: (ip: .* is not an address|path ".* does not begin with a slash)`, with: "list: "},
	{why: "the values of an attribute depend on its declaration", pattern: `^match: ip: .* is not an address`, with: " ip\n"},
	{why: "the same of overrides, tiers, costs and attributes", pattern: `^overrides: (".*" is not an address|the path is ambiguous)|^tiers: (by: ip is not supported|the path is ambiguous)|^cost: (an address|a path|the default) |is built in: refer to it|: attribute "[^"]*": default: [^i]`},
	{why: "which keys a match may have depends on the attributes that are declared", pattern: `^(match|allow|deny|except|priorities: match|load_shedding: match): there is no key `},
	{why: "names that several entries must not share", pattern: `, and the two would share|^two limits have the name|is listed twice`},
	{why: "the keys of a limit depend on its algorithm, which the rule or the defaults may set", pattern: `^(accuracy|on_limit): .*(needs a fixed_window|needs algorithm|is not supported with concurrent|needs exact)|(is|are) for (token_bucket|fixed_window|sliding_window_counter)|has no burst|has no windows to align|always starts full|only fixed_window can`},
	{why: "numbers of windows that must fit each other", pattern: `does not divide a window|is more than a burst of|are shorter than 1 ms|a window can count`},
	{why: "more durations", pattern: `is not between 1 ms and 366 days|a TTL of .* is not between|is not between 1s and 366 days`},
	{why: "the units of a calendar", pattern: `a calendar has days, weeks`},
	{why: "counts in thousands and millions", pattern: `at most 10000 can be in flight`},
	{why: "counts beyond 64 bits", pattern: `"[0-9_]{15,}[kM]?" is not a count|is "?\s*[0-9_]{15,}[kM]?\s*"?: write a whole number, such as`},
	{why: "patterns of paths", pattern: `^match: path "/`},
	{why: "where a host has a *", pattern: `^match: host .*\* is only valid at the start`},
	{why: "regular expressions", pattern: `^match: error parsing regexp`},
	{why: "the names of time zones", pattern: `there is no time zone`},
	{why: "media types", pattern: `is not a media type`},
	{why: "words in braces", pattern: `^denial: .*there is no \{`},
	{why: "escapes in a cookie's value", pattern: `percent sign .* in a cookie's value`},
	{why: "the length of a key is that of per", pattern: `overrides: (a key needs one value for each|the rule counts per|the rule has no per)`},
	{why: "two numbers in order", pattern: `is "\s*[1-5][0-9]{2}\s*-\s*[1-5][0-9]{2}\s*": write a status|^load_shedding: .*min.*max`},
	{why: "the value of on_limit may come from the defaults", pattern: `^(max_delay|queue): needs on_limit`},
})

var testMeanings = slices.Concat(yamlMeanings, textMeanings, []meaning{
	{why: "00 and 0.0 are 0 to a validator", pattern: `(00|-0|0\.0|0x0|\+0) has no unit`},
	{why: "the order of times", pattern: `^at: .* is before the request above`},
	{why: "names that several entries must not share", pattern: `^(name: the test|as: the reservation) at line`},
	{why: "a reservation that is made elsewhere", pattern: `^settle: no request above is reserved as`},
	{why: "durations are sums of parts", pattern: `write at most 3660d|is "[^"]+", which is too long`},
	{why: "the sum of two numbers", pattern: `^expect: allow .* make .* but times is`},
	{why: "headers that a request has by itself, and values of others", pattern: `^headers: (".*" is not a host|the request has no body|the value of header)|^cookies: "[^"= ]+=.*(;|\\r|\\n).*" is not a cookie`},
	{why: "hosts, and escapes in a path", pattern: `^request: .*( is not a host|is not valid: parse)`},
	{why: "days of a month", pattern: `^start: is "[0-9]{4}-[0-9]{2}-(29|30|31)`},
})

var serviceMeanings = slices.Concat(yamlMeanings, booleanMeanings, textMeanings, []meaning{
	{why: "which variables are set, and to what", pattern: `there is no environment variable|7777|vword|write a URL (that begins with|such as)|"" is not a domain`, with: "${"},
	{why: ".inf, .5 and 0x10 are numbers to a validator, and FALSE is false", pattern: `\.(inf|nan)|^gateway\.routes\.(host: is \.[0-9]|cors\.methods: "(0[xo]|(?i:true|false)))`},
	{why: "a reference to something that is declared elsewhere", pattern: `^gateway\.routes\.upstream: (there is no upstream|is ["0-9.+tTfF-].*: (did you mean|write ))|is not set up: write authentication`},
	{why: "sizes with units are not compared as numbers", pattern: `is not between [0-9]+[KMG]?i?B and`},
	{why: "durations are sums of parts", pattern: `is "[^"]+", which is too long|is not between (1s|100ms) and 3650d`},
	{why: "numbers and sizes that must fit each other", pattern: `is more than max_|is less than 16 times`},
	{why: "paths and patterns of paths", pattern: `: path "/|is "/[^*{}]*": write a plain path|is "/.*": write a path, such as`},
	{why: "limits that must fit an algorithm", pattern: `^authentication\.failed_attempts: is ".*[0-9][kM]?\s*/`},
	{why: "domains, origins and servers are more than their characters", pattern: `is not a domain: write one|wildcard certificates need a DNS challenge|: origin "|credentials cannot be allowed|browsers treat the exposed header|servers: is "(?i:https?|h2c)://|write a URL such as`},
	{why: "listeners and sections that go together", pattern: `^gateway: the listener is off|^admin: the listener|there are no routes, and|can be reached from other hosts|listeners\.http is off|all listeners are off`},
	{why: "settings that need another", pattern: `is for kind: |store\.tls: (the memory store|the url does not use)|redis needs a url|metrics are disabled|is for keys: masked|client names are trusted only|is for load_balancing: hash|no server uses TLS|the endpoint does not use TLS|is for external NATS servers|the route has no authentication|need secret_file|use a shared secret|could forge tokens`},
	{why: "routes that match the same requests", pattern: `matches the same requests|not all paths that match|are reserved for the gateway`},
})

var envoyMeanings = slices.Concat(yamlMeanings, limitMeanings, []meaning{
	{why: "1.0, 1e3 and .inf are numbers to a validator", pattern: `^error checking config: .* is not a whole number: write one|not a number that a response can contain`},
	{why: "whether a word of YAML 1.1 is in quotes", pattern: `is "(?i:yes|no|on|off|y|n)": write true or false, without quotes`},
	{why: "the keys of a descriptor depend on its value, its list and its algorithm", pattern: `^share_threshold can only|cannot be in a list: write it alone|^sluice: rule .* Accuracy: |has no burst|is zero: use a count of at least 1`},
	{why: "a number of units", pattern: `is more than 366 days`},
	{why: "names that several entries must not share", pattern: `^duplicate descriptor composite key|^two limits have the name|^replaces should not contain`},
})
