package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluiceproject/sluice"

// Wildcards in mayImport.
const (
	anything  = "<anything>"
	anyPublic = "<any public folder>" // none below internal, cmd or examples
)

// mayImport lists the folders of this repository that a folder's code, except tests, may import directly. Every folder
// of the workspace with Go code has a line here.
var mayImport = map[string][]string{
	".":              {"internal/step", "internal/group", "internal/private", "internal/remote", "internal/permit"},
	"internal/step":  {},
	"internal/group": {"internal/step"},
	"internal/table": {"internal/step", "internal/group", "internal/bounds"},

	// Access to unexported parts of the root package, for this repository only.
	"internal/private": {"internal/step", "internal/group"},

	// Between a limiter and its store.
	"internal/remote": {"internal/step", "internal/group", "internal/table", "internal/bounds"},
	"internal/permit": {"internal/step", "internal/group"},

	// Goroutines that their owners wait for.
	"internal/goroutines": {},

	// Bounds on the memory and work that untrusted input can cause.
	"internal/bounds":          {},
	"internal/buffers":         {"internal/bounds", "internal/keyenc"},
	"cmd/internal/edge/shares": {},

	// Bounds on the replies of servers that Sluice depends on.
	"internal/arrival":    {},
	"internal/replyguard": {"internal/arrival", "internal/bounds"},

	// Files that a service depends on.
	"internal/plainfile":           {},
	"cmd/internal/pemfile":         {"internal/plainfile"},
	"cmd/internal/edge/domainname": {},

	// Request bodies.
	"cmd/internal/jsonbody": {"internal/suggest"},

	// Stores, their shared code, and the conformance suite.
	"internal/storekit":  {".", "internal/private", "internal/step", "internal/group"},
	"memstore":           {".", "internal/private", "internal/storekit", "internal/step", "internal/group", "internal/table", "internal/plainfile"},
	"redisstore":         {".", "internal/private", "internal/storekit", "internal/step", "internal/group", "internal/table", "internal/arrival", "internal/replyguard", "internal/plainfile", "internal/goroutines"},
	"redisstore/goredis": {".", "redisstore"},
	"memcachestore":      {".", "internal/private", "internal/storekit", "internal/step", "internal/group", "internal/table", "internal/arrival", "internal/bounds", "internal/goroutines"},
	"storetest":          {".", "internal/private", "internal/storekit", "internal/step"},

	// Servers for tests.
	"internal/testenv/redistest":          {"internal/testenv/tcptest"},
	"internal/testenv/memcachetest":       {"internal/testenv/tcptest"},
	"cmd/internal/testenv/prometheustest": {"internal/testenv/tcptest"},
	"internal/testenv/disktest":           {},
	"internal/testenv/busytest":           {"."},
	"internal/testenv/faultproxy":         {"internal/testenv/tcptest"},
	"internal/testenv/tcptest":            {},
	"internal/testenv/outagetest":         {".", "internal/testenv/faultproxy"},

	// Shared by tests: hostile input of clients, upstreams, stores and files, and counting of allocations.
	"cmd/internal/testenv/attacks": {"internal/testenv/tcptest"},
	"internal/testenv/allocs":      {},

	// Rules and rule files.
	"internal/keyenc":     {},
	"internal/pairs":      {},
	"internal/suggest":    {},
	"internal/panics":     {},
	"internal/match":      {"internal/bounds"},
	"rules":               {".", "internal/private", "internal/keyenc", "internal/pairs", "internal/panics", "internal/suggest", "internal/bounds", "internal/match"},
	"internal/strictyaml": {"internal/panics", "internal/suggest", "internal/bounds"},
	"rulefile":            {".", "rules", "internal/panics", "internal/plainfile", "internal/suggest", "internal/strictyaml", "internal/bounds"},

	// Load shedding.
	"internal/overload": {},

	// Edges. They get a limiter and do not depend on a store.
	"internal/shaper":    {"internal/bounds"},
	"internal/clientip":  {"internal/bounds", "internal/keyenc"},
	"internal/problem":   {},
	"internal/cors":      {},
	"internal/quota":     {".", "internal/problem"},
	"internal/admission": {".", "rules", "internal/bounds", "internal/buffers", "internal/clientip", "internal/overload", "internal/pairs", "internal/private", "internal/problem", "internal/quota", "internal/shaper", "internal/match"},
	"httplimit":          {".", "rules", "internal/admission", "internal/clientip", "internal/cors", "internal/keyenc", "internal/pairs", "internal/quota"},
	"grpclimit":          {"."},

	// The service: Envoy's protocol, the Redis protocol, and JSON.
	"cmd/internal/edge/rls":        {".", "internal/private", "rules", "internal/bounds"},
	"cmd/internal/edge/resp":       {".", "internal/private", "internal/bounds"},
	"cmd/internal/edge/checkapi":   {".", "cmd/internal/jsonbody", "internal/admission", "internal/clientip", "internal/private", "rules", "internal/quota", "internal/pairs", "cmd/internal/edge/rls", "internal/suggest", "internal/bounds", "internal/problem", "internal/match"},
	"cmd/internal/testenv/rlstest": {},
	"internal/testenv/certtest":    {},
	"cmd/internal/edge/listen":     {"cmd/internal/edge/domainname", "internal/bounds", "internal/keyenc", "cmd/internal/edge/shares", "cmd/internal/pemfile", "internal/plainfile", "internal/problem"},
	"cmd/internal/config":          {".", "rules", "cmd/internal/edge/domainname", "internal/cors", "internal/panics", "internal/strictyaml", "internal/plainfile", "internal/match", "internal/suggest"},
	"cmd/internal/operate/topkeys": {},
	"cmd/internal/operate/metrics": {".", "rules", "internal/bounds", "internal/shaper", "cmd/internal/operate/topkeys"},
	"cmd/internal/operate/insight": {".", "rules", "internal/private", "internal/step"},

	// Authentication.
	"cmd/internal/gateway/authn": {".", "rules", "cmd/internal/pemfile", "internal/plainfile", "internal/keyenc", "internal/panics", "internal/suggest", "internal/strictyaml", "internal/bounds"},

	// Logs, metrics and traces of the service.
	"cmd/internal/operate/logwriter":   {"internal/bounds", "internal/plainfile"},
	"cmd/internal/operate/logging":     {".", "rules"},
	"cmd/internal/operate/telemetry":   {".", "internal/plainfile", "cmd/internal/edge/rls"},
	"cmd/internal/testenv/openapitest": {},
	"cmd/internal/testenv/otlptest":    {},
	"cmd/internal/operate/accesslog":   {"cmd/internal/jsonline", "cmd/internal/operate/logwriter"},

	// The service: forward authentication for proxies.
	"cmd/internal/edge/forwardauth":        {".", "rules", "internal/admission", "internal/quota", "internal/problem"},
	"cmd/internal/testenv/forwardauthtest": {"internal/testenv/tcptest"},
	// The gateway: a reverse proxy that applies rules.
	"cmd/internal/gateway/gateway": {".", "rules", "internal/admission", "internal/clientip", "internal/cors", "internal/quota", "cmd/internal/gateway/authn", "internal/bounds", "internal/buffers", "internal/keyenc", "cmd/internal/gateway/queue", "cmd/internal/edge/shares", "internal/problem", "internal/match"},
	// Clients of a running service. They know the messages of its API and nothing of its implementation.
	"cmd/internal/operate/adminclient": {"internal/plainfile", "cmd/internal/pemfile", "cmd/internal/operate/adminmsg"},
	"cmd/internal/operate/adminmsg":    {},
	"cmd/internal/operate/admincli":    {"rules", "cmd/internal/operate/adminclient", "cmd/internal/operate/adminmsg", "cmd/internal/rulework/sample", "cmd/internal/term"},

	// The drop-in replacement for Envoy's rate limit service.
	"cmd/internal/envoy/stats": {"internal/strictyaml"},
	"cmd/internal/envoy/xds":   {".", "rules", "internal/bounds", "internal/panics"},
	"cmd/internal/envoy/envoyratelimit": {
		".", "rules", "rulefile", "cmd/internal/stores", "cmd/internal/edge/rls", "cmd/internal/envoy/stats",
		"internal/panics", "cmd/internal/jsonbody", "cmd/internal/envoy/xds", "cmd/internal/edge/listen", "internal/suggest", "internal/replyguard", "cmd/internal/operate/logwriter", "cmd/internal/pemfile", "internal/plainfile", "internal/strictyaml", "internal/bounds", "internal/quota",
	},

	// Tests that users write for their rules.
	"cmd/internal/rulework/ruletest": {".", "rules", "internal/plainfile", "rulefile", "httplimit", "memstore", "internal/suggest", "internal/strictyaml", "cmd/internal/rulework/fileerrors", "cmd/internal/rulework/sample", "cmd/internal/term", "internal/match"},

	// Requests in text form, and the output of the command line.
	"cmd/internal/rulework/sources":    {"rulefile", "internal/plainfile", "cmd/internal/rulework/fileerrors"},
	"cmd/internal/rulework/fileerrors": {"rules", "rulefile", "cmd/internal/term"},
	"cmd/internal/rulework/describe":   {".", "rules", "cmd/internal/rulework/examples", "cmd/internal/term"},
	"cmd/internal/rulework/examples":   {".", "rules", "httplimit", "memstore", "internal/match", "internal/quota", "cmd/internal/gateway/gateway", "cmd/internal/gateway/queue", "cmd/internal/rulework/sample"},
	"cmd/internal/rulework/check":      {".", "rules", "rulefile", "memstore", "cmd/internal/config", "cmd/internal/rulework/describe", "cmd/internal/rulework/fileerrors", "cmd/internal/rulework/sources", "cmd/internal/term", "internal/strictyaml"},
	"cmd/internal/rulework/sample":     {"rules", "httplimit"},
	"cmd/internal/rulework/format":     {"cmd/internal/term", "rulefile", "internal/plainfile"},
	"cmd/internal/term":                {"internal/plainfile", "internal/strictyaml"}, // tables, colours, exit codes

	// Simulation of rules on recorded traffic.
	"cmd/internal/jsonline":         {},
	"cmd/internal/traffic/logs":     {"internal/clientip", "internal/keyenc", "internal/plainfile", "cmd/internal/jsonline", "cmd/internal/operate/accesslog"},
	"cmd/internal/traffic/generate": {"cmd/internal/operate/accesslog"},
	"cmd/internal/traffic/simulate": {".", "rules", "memstore", "internal/match", "internal/pairs", "cmd/internal/operate/accesslog", "cmd/internal/traffic/logs", "cmd/internal/term"},

	// Limits recommended from recorded traffic.
	"cmd/internal/traffic/recommend": {".", "memstore", "rulefile", "internal/plainfile", "cmd/internal/rulework/ruletest", "cmd/internal/traffic/logs", "cmd/internal/term"},

	// The remaining quota of a request under all its rules.
	"cmd/internal/rulework/explain": {".", "rules", "httplimit", "cmd/internal/rulework/sample", "cmd/internal/term"},

	// The service: the admin API.
	"cmd/internal/operate/adminapi": {".", "cmd/internal/jsonbody", "internal/suggest", "rules", "internal/plainfile", "httplimit", "cmd/internal/operate/adminmsg", "cmd/internal/rulework/explain", "cmd/internal/rulework/sample", "internal/keyenc", "internal/bounds", "internal/problem", "internal/quota", "internal/strictyaml"},

	// The gateway: upstream servers.
	"cmd/internal/gateway/upstream": {"internal/bounds", "cmd/internal/pemfile", "internal/plainfile", "internal/problem"},
	// The durable queue.
	"cmd/internal/gateway/queue": {"internal/bounds", "internal/keyenc", "cmd/internal/pemfile", "internal/plainfile", "internal/replyguard", "internal/problem", "internal/goroutines"},

	// Programs.
	"cmd/sluice":               {anything},
	"cmd/internal/serve":       {anything}, // it connects all packages
	"cmd/internal/demo":        {"cmd/internal/config", "cmd/internal/operate/adminclient", "cmd/internal/operate/logwriter", "cmd/internal/serve", "cmd/internal/term"},
	"cmd/internal/stores":      {".", "memstore", "redisstore", "memcachestore", "cmd/internal/config", "cmd/internal/pemfile"},
	"examples/quickstart":      {anyPublic},
	"examples/http":            {anyPublic},
	"examples/grpc":            {anyPublic},
	"examples/multiple-limits": {anyPublic},
	"examples/rulefile":        {anyPublic},
	"examples/llmtokens":       {anyPublic},
	"examples/wait":            {anyPublic},
	"examples/virtual-clock":   {anyPublic},

	// Load generation, and its report.
	"cmd/internal/loadgen":        {},
	"cmd/internal/loadgen/report": {"cmd/internal/loadgen"},
	"cmd/internal/loadgen/bench":  {"cmd/internal/loadgen", "cmd/internal/loadgen/report", "cmd/internal/operate/logwriter", "cmd/internal/pemfile", "cmd/internal/term", "internal/plainfile"},

	// Only tests.
	"internal/archtest":         {},
	"cmd/internal/doctest":      {},
	"cmd/internal/doctest/walk": {anything},
	"cmd/internal/goredistest":  {},
	"cmd/internal/schematest":   {},
}

// A ban is a package that a folder must not depend on. In path, "./x" is folder x of this repository, "..." matches any
// text, and subfolders are included.
type ban struct {
	path string
	why  string
	// direct bans only direct imports. Nearly all of the standard library depends on some packages, so that banning
	// indirect imports of them would ban errors.
	direct bool
}

var (
	stores = []ban{
		{path: "./...store", why: "the caller chooses the store; importing one would force it on every user"},
	}
	suite = []ban{
		{path: "./storetest", why: "it is for tests and depends on their libraries"},
	}
	edges = []ban{
		{path: "./httplimit", why: "edges are above: they import the limiter, not the reverse"},
		{path: "./grpclimit", why: "edges are above: they import the limiter, not the reverse"},
	}
	protocols = []ban{
		{path: "net/http", why: "protocols are the edges' business; an embedded limiter must not carry a server"},
		{path: "google.golang.org/grpc", why: "protocols are the edges' business; an embedded limiter must not carry a server"},
	}
	weight = []ban{
		{path: "...yaml...", why: "files are read by programs; a library's users should not pay for a parser"},
		{path: "github.com/prometheus", why: "the core reports through sluice.Events; a program connects that to its metrics"},
	}
	pure = []ban{
		{path: "time", why: "a step is given the time as integer microseconds, which is what makes it testable and portable", direct: true},
		{path: "context", why: "a step cannot wait, so it has nothing to cancel", direct: true},
		{path: "sync", why: "a step works on values; the table or the store does the locking", direct: true},
	}
	ruleSets = []ban{
		{path: "./rules", why: "rules are above: they are turned into takes before the limiter sees them"},
	}
)

// neverReach lists the packages that a folder's code must not depend on, directly or, unless the ban is direct,
// indirectly.
var neverReach = map[string][]ban{
	".":             slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/step": slices.Concat(pure, protocols, weight),
	"internal/group": slices.Concat(protocols, weight, []ban{
		{path: "context", why: "a decision about several takes cannot wait, so it has nothing to cancel", direct: true},
	}),
	"internal/remote":   slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/private":  slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/permit":   slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/table":    slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/storekit": slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"memstore":          slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"storetest":         slices.Concat(stores, edges, ruleSets, protocols, weight),
	"redisstore": slices.Concat(suite, edges, ruleSets, weight, []ban{
		{path: "github.com/redis/go-redis", why: "programs that use the store's own client should not have to link another"},
	}),
	"redisstore/goredis":       slices.Concat(suite, edges, ruleSets, weight),
	"memcachestore":            slices.Concat(suite, edges, ruleSets, weight),
	"internal/match":           slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"rules":                    slices.Concat(stores, suite, edges, protocols, weight),
	"internal/keyenc":          slices.Concat(stores, suite, edges, protocols, weight),
	"internal/buffers":         slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"cmd/internal/edge/shares": slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/strictyaml":      slices.Concat(stores, suite, edges, ruleSets, protocols),
	"rulefile":                 slices.Concat(stores, suite, edges, protocols),
	"httplimit": slices.Concat(stores, suite, weight, []ban{
		{path: "google.golang.org/grpc", why: "programs that serve HTTP should not have to download gRPC"},
		{path: "./grpclimit", why: "edges do not depend on each other"},
	}),
	"internal/overload":  slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/clientip":  slices.Concat(stores, suite, edges, ruleSets, weight),
	"internal/problem":   slices.Concat(stores, suite, edges, ruleSets, weight),
	"internal/cors":      slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"internal/quota":     slices.Concat(stores, suite, edges, ruleSets, weight),
	"internal/admission": slices.Concat(stores, suite, edges, weight),
	"cmd/internal/edge/forwardauth": slices.Concat(stores, suite, weight, []ban{
		{path: "google.golang.org/grpc", why: "it serves HTTP"},
	}),
	"cmd/internal/gateway/gateway": slices.Concat(stores, suite, []ban{
		{path: "github.com/prometheus", why: "its callers record metrics"},
		{path: "google.golang.org/grpc", why: "it treats a gRPC call like any other request"},
	}),
	"cmd/internal/envoy/xds":   slices.Concat(stores, suite, edges),
	"cmd/internal/envoy/stats": slices.Concat(stores, suite, edges, ruleSets),
	"cmd/internal/loadgen":     slices.Concat(stores, suite, edges, ruleSets, weight),
	"grpclimit": slices.Concat(stores, suite, weight, []ban{
		{path: "./httplimit", why: "edges do not depend on each other"},
	}),
	"cmd/internal/edge/rls":        slices.Concat(stores, suite, weight),
	"cmd/internal/edge/checkapi":   slices.Concat(stores, suite),
	"cmd/internal/edge/listen":     slices.Concat(stores, suite, ruleSets, weight),
	"cmd/internal/config":          slices.Concat(stores, suite, edges, protocols),
	"cmd/internal/operate/metrics": slices.Concat(stores, suite, edges),
	"cmd/internal/operate/topkeys": slices.Concat(protocols, weight),
	"cmd/internal/operate/insight": slices.Concat(stores, suite, edges, protocols, weight),
	"cmd/internal/edge/resp":       slices.Concat(stores, suite, edges, ruleSets, protocols, weight),

	"cmd/internal/gateway/authn": slices.Concat(stores, suite, edges, []ban{
		{path: "google.golang.org/grpc", why: "it handles HTTP requests"},
		{path: "github.com/prometheus", why: "its callers record metrics"},
	}),
	"cmd/internal/operate/logging":   slices.Concat(stores, suite, edges, protocols, weight),
	"cmd/internal/operate/telemetry": slices.Concat(stores, suite, edges),
	"cmd/internal/operate/logwriter": slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"cmd/internal/operate/accesslog": slices.Concat(stores, suite, edges, ruleSets, protocols, weight),
	"cmd/internal/gateway/queue":     slices.Concat(stores, suite, edges, ruleSets, weight),
	"cmd/internal/operate/adminapi": slices.Concat(suite, []ban{
		{path: "./cmd/internal/gateway/queue", why: "it gets the queue as an interface; its users need not link NATS"},
		{path: "./...store", why: "the admin API works with any store", direct: true},
		{path: "./cmd/internal/edge/rls", why: "edges do not depend on each other"},
		{path: "github.com/prometheus", why: "it gets a handler for metrics"},
	}),
	"cmd/internal/operate/adminclient": slices.Concat(stores, suite, edges, ruleSets, weight),
	"cmd/internal/operate/adminmsg":    slices.Concat(stores, suite, edges, ruleSets, weight),
	"cmd/internal/gateway/upstream": slices.Concat(stores, suite, edges, ruleSets, weight, []ban{
		{path: "google.golang.org/grpc", why: "gRPC is HTTP/2 with trailers here; nothing needs to parse its messages"},
	}),
}

// tables is the file that error messages refer to.
const tables = "internal/archtest/arch_test.go"

// pkg is the information about a package that the checks use.
type pkg struct {
	Path    string   // import path
	Imports []string // direct, without those of tests
	Deps    []string // direct and indirect
}

// folder returns the folder of an import path in the repository; ok is false for an import path outside of it.
func folder(path string) (name string, ok bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// checkImports returns an error for every folder that is not in the table and for every import within the repository
// that the table does not permit.
func checkImports(pkgs []pkg, table map[string][]string) (faults []string) {
	for _, p := range pkgs {
		from, ok := folder(p.Path)
		if !ok {
			continue
		}
		allowed, ok := table[from]
		if !ok {
			faults = append(faults, undeclared(from))
			continue
		}
		for _, imp := range p.Imports {
			to, ours := folder(imp)
			if !ours || permits(allowed, to) {
				continue
			}
			faults = append(faults, fmt.Sprintf(
				"%s imports %s, which it may not: imports point down the layers, and mayImport gives it %s.\n"+
					"\tMove the shared code down to a folder both may import, or let the caller pass in what is needed.\n"+
					"\tIf the layers themselves must change, change mayImport in %s and explain it in the commit.",
				from, to, list(allowed), tables))
		}
	}
	return faults
}

func undeclared(name string) string {
	return fmt.Sprintf(
		"%s is not declared: every folder with Go code must declare its imports.\n"+
			"\tAdd a line like\n\t\t%q: {\".\"},\n\tto mayImport in %s, listing the folders of this repository that it imports, and no more;\n"+
			"\tthen add to neverReach the packages that it must not depend on.",
		name, name, tables)
}

func permits(allowed []string, to string) bool {
	if slices.Contains(allowed, anything) || slices.Contains(allowed, to) {
		return true
	}
	return slices.Contains(allowed, anyPublic) && public(to)
}

func public(name string) bool {
	parts := strings.Split(name, "/")
	return !slices.Contains(parts, "internal") && parts[0] != "cmd" && parts[0] != "examples"
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing of this repository"
	}
	return strings.Join(names, ", ")
}

// checkReach returns an error for every banned package that a folder depends on, with the chain of imports as far as
// pkgs contains it.
func checkReach(pkgs []pkg, table map[string][]ban) (faults []string) {
	imports := map[string][]string{}
	for _, p := range pkgs {
		imports[p.Path] = p.Imports
	}
	for _, p := range pkgs {
		from, ok := folder(p.Path)
		if !ok {
			continue
		}
		for _, b := range table[from] {
			reached, verb := p.Deps, "reaches"
			if b.direct {
				reached, verb = p.Imports, "imports"
			}
			// One error per ban: the rest of net/http/... follows from the first.
			i := slices.IndexFunc(reached, b.pattern().MatchString)
			if i < 0 {
				continue
			}
			faults = append(faults, fmt.Sprintf(
				"%s %s %s, which it never may: %s.\n"+
					"\tChain of imports: %s.\n"+
					"\tBreak that chain; the ban on %q is in neverReach in %s.",
				from, verb, reached[i], b.why, strings.Join(way(imports, p.Path, reached[i]), " → "), b.path, tables))
		}
	}
	return faults
}

// pattern matches the import paths that b bans.
func (b ban) pattern() *regexp.Regexp {
	path := b.path
	if ours, ok := strings.CutPrefix(path, "./"); ok {
		path = module + "/" + ours
	}
	expr := strings.ReplaceAll(regexp.QuoteMeta(path), `\.\.\.`, `.*`)
	return regexp.MustCompile(`^` + expr + `(/.*)?$`)
}

// way returns a shortest chain of imports between two packages, both included.
func way(imports map[string][]string, from, to string) []string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			var chain []string
			for ; at != ""; at = cameFrom[at] {
				chain = append(chain, at)
			}
			slices.Reverse(chain)
			return chain
		}
		for _, next := range imports[at] {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = at
				queue = append(queue, next)
			}
		}
	}
	return []string{from, "…", to}
}

// stale returns the folders that are in the tables and not in pkgs.
func stale(pkgs []pkg) []string {
	named := map[string]bool{}
	for name, to := range mayImport {
		named[name] = true
		for _, name := range to {
			named[name] = name != anything && name != anyPublic
		}
	}
	for name := range neverReach {
		named[name] = true
	}
	for _, p := range pkgs {
		if name, ok := folder(p.Path); ok {
			named[name] = false
		}
	}
	maps.DeleteFunc(named, func(_ string, missing bool) bool { return !missing })
	return slices.Sorted(maps.Keys(named))
}

// TestLayers checks the workspace for each operating system, so that a file for Windows only has to obey the same
// layers.
func TestLayers(t *testing.T) {
	told := map[string]bool{}
	var all []pkg
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			pkgs := load(t, system)
			all = append(all, pkgs...)
			for _, fault := range slices.Concat(checkImports(pkgs, mayImport), checkReach(pkgs, neverReach)) {
				if !told[fault] {
					t.Error(fault)
				}
				told[fault] = true
			}
		})
	}
	if names := stale(all); len(names) > 0 {
		t.Logf("%s names folders that do not exist: %s", tables, strings.Join(names, ", "))
	}
}

// load returns the workspace's packages and all their dependencies, by go list.
func load(t *testing.T, system string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-race=false", "-e", "-deps", "-json=ImportPath,Imports,Deps,Error", "work")
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}

	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath    string
			Imports, Deps []string
			Error         *struct{ Err string }
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if p.Error != nil {
			t.Errorf("%s does not load, so its imports are incomplete: %s", p.ImportPath, p.Error.Err)
		}
		pkgs = append(pkgs, pkg{p.ImportPath, p.Imports, p.Deps})
	}
	if len(pkgs) == 0 {
		t.Fatal("go list found no packages")
	}
	return pkgs
}

// root returns the root folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(mod), "module "+module+"\n") {
		t.Fatalf("%s is not the go.mod of %s", filepath.Join(dir, "go.mod"), module)
	}
	return dir
}

// The tests below check that the checks detect violations.

func TestCheckImports(t *testing.T) {
	table := map[string][]string{
		".":                   {"internal/step"},
		"internal/step":       {},
		"memstore":            {".", "internal/step"},
		"cmd/sluice":          {anything},
		"examples/quickstart": {anyPublic},
	}
	tests := []struct {
		name string
		pkg  pkg
		want []string // each contained in one error, in order
	}{
		{"down", pkg{Path: module + "/memstore", Imports: []string{"sync", module, module + "/internal/step"}}, nil},
		{"foreign", pkg{Path: module, Imports: []string{"github.com/sluiceprojects/other", "time"}}, nil},
		{"up", pkg{Path: module, Imports: []string{module + "/internal/step", module + "/memstore"}}, []string{
			". imports memstore, which it may not",
		}},
		{"up from the bottom", pkg{Path: module + "/internal/step", Imports: []string{module, module + "/memstore"}}, []string{
			"internal/step imports ., which it may not: imports point down the layers, and mayImport gives it nothing of this repository",
			"internal/step imports memstore",
		}},
		{"undeclared", pkg{Path: module + "/memstore/lru", Imports: []string{module}}, []string{
			"memstore/lru is not declared",
		}},
		{"anything", pkg{Path: module + "/cmd/sluice", Imports: []string{module + "/internal/step", module + "/memstore"}}, nil},
		{"public", pkg{Path: module + "/examples/quickstart", Imports: []string{module, module + "/memstore"}}, nil},
		{"not public", pkg{
			Path:    module + "/examples/quickstart",
			Imports: []string{module + "/internal/step", module + "/a/internal/b", module + "/cmd/sluice", module + "/examples/x"},
		}, []string{
			"imports internal/step", "imports a/internal/b", "imports cmd/sluice", "imports examples/x",
		}},
		{"not ours", pkg{Path: "net/http", Imports: []string{module}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			compare(t, checkImports([]pkg{tt.pkg}, table), tt.want)
		})
	}
}

func TestCheckReach(t *testing.T) {
	table := map[string][]ban{
		".": {{path: "net/http", why: "w1"}, {path: "...yaml...", why: "w2"}, {path: "./...store", why: "w3"}},
		"internal/step": {
			{path: "time", why: "w4", direct: true},
			{path: "sync", why: "w5", direct: true},
		},
	}
	step := module + "/internal/step"
	tests := []struct {
		name string
		pkgs []pkg
		want []string
	}{
		{"clean", []pkg{{Path: module, Deps: []string{"net/httputil", "time", module + "/storetest", "example.org/memstore"}}}, nil},
		{"through another", []pkg{
			{Path: module, Imports: []string{step, "errors"}, Deps: []string{step, "errors", "net/http", "net/http/internal"}},
			{Path: step, Imports: []string{"net/http"}, Deps: []string{"net/http", "net/http/internal"}},
		}, []string{
			". reaches net/http, which it never may: w1.\n\tChain of imports: " + module + " → " + step + " → net/http.",
		}},
		{"way unknown", []pkg{{Path: module, Deps: []string{"net/http/httptest"}}}, []string{
			module + " → … → net/http/httptest",
		}},
		{"wildcards", []pkg{{Path: module, Deps: []string{"gopkg.in/yaml.v3", module + "/redisstore"}}}, []string{
			"reaches gopkg.in/yaml.v3, which it never may: w2", "reaches " + module + "/redisstore, which it never may: w3",
		}},
		{"direct", []pkg{{Path: step, Imports: []string{"sync/atomic"}, Deps: []string{"sync/atomic", "time"}}}, []string{
			"internal/step imports sync/atomic, which it never may: w5",
		}},
		{"no bans", []pkg{{Path: module + "/cmd/sluice", Deps: []string{"net/http"}}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			compare(t, checkReach(tt.pkgs, table), tt.want)
		})
	}
}

// compare checks that there is one error for each of want, in order, that contains it.
func compare(t *testing.T, faults, want []string) {
	t.Helper()
	if len(faults) != len(want) {
		t.Fatalf("%d errors, want %d:\n%s", len(faults), len(want), strings.Join(faults, "\n"))
	}
	for i, fault := range faults {
		if !strings.Contains(fault, want[i]) {
			t.Errorf("fault %d:\n%s\nlacks:\n%s", i, fault, want[i])
		}
	}
}

// TestTablesAgree checks that no ban contradicts mayImport: such tables could not be obeyed.
func TestTablesAgree(t *testing.T) {
	for name, bans := range neverReach {
		if _, ok := mayImport[name]; !ok {
			t.Errorf("neverReach contains %s, which mayImport does not: add it in %s", name, tables)
		}
		for _, b := range bans {
			if b.why == "" {
				t.Errorf("%s: the ban on %q has no reason: add one for the error message", name, b.path)
			}
			for _, to := range mayImport[name] {
				if to != "." && b.pattern().MatchString(module+"/"+to) {
					t.Errorf("mayImport lets %s import %s and neverReach bans %q: drop one of the two", name, to, b.path)
				}
			}
		}
	}
}
