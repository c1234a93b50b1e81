package envoyratelimit

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	s, warnings, err := ReadSettings(nil)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	for _, tt := range []struct{ got, want any }{
		{s.Port, 8080},
		{s.DebugHost, "127.0.0.1"},
		{s.DebugPort, 6070},
		{s.GRPC.Port, 8081},
		{s.GRPC.MaxAge, 24 * time.Hour},
		{s.LogLevel, "warn"},
		{s.Rules.Root, "/srv/runtime_data/current"},
		{s.Rules.App, "config"},
		{s.Rules.Source, "FILE"},
		{s.XDS.BackoffMax, time.Minute},
		{s.Stats.Statsd, true},
		{s.Stats.Flush, 10 * time.Second},
		{s.Counting.NearRatio, float32(0.8)},
		{s.Counting.ExpiryJitter, int64(300)},
		{s.Counting.OnFailure, "error"},
		{s.Counting.EnvoyKeys, false},
		{s.Backend, "redis"},
		{s.Redis.URL, "/var/run/nutcracker/ratelimit.sock"},
		{s.PerSecond.URL, "/var/run/nutcracker/ratelimitpersecond.sock"},
		{s.Redis.Type, "SINGLE"},
		{s.Redis.SocketType, "unix"},
		{s.Redis.Timeout, 10 * time.Second},
		{s.Startup.Most, 30 * time.Second},
		{s.Response.ResetHeader, "RateLimit-Reset"},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
}

func TestSettings(t *testing.T) {
	s, warnings, err := ReadSettings([]string{
		"RUNTIME_APPDIRECTORY=", "PORT=", "LOG_LEVEL=Info", "REDIS_TYPE=cluster", "REDIS_AUTH=user:pass:word", "REDIS_PERSECOND_AUTH=x",
		"REDIS_TLS_CACERT=/ca", "MEMCACHE_HOST_PORT=a:1, b:2,", "EXTRA_TAGS=env:prod,zone:a", "NEAR_LIMIT_RATIO=0.5", "USE_STATSD=0",
		"USE_DOG_STATSD=true", "USE_DOG_STATSD_MOGRIFIERS=ONE", "DOG_STATSD_MOGRIFIER_ONE_PATTERN=a(.*)", "DOG_STATSD_MOGRIFIER_ONE_NAME=b",
		"DOG_STATSD_MOGRIFIER_ONE_TAGS=k:$1", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:b:c", "SLUICE_KEY_FORMAT=envoy",
	})
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	for _, tt := range []struct{ got, want any }{
		{s.Rules.App, ""},
		{s.Port, 8080},
		{s.LogLevel, "info"},
		{s.Redis.Type, "CLUSTER"},
		{s.Redis.Auth, "user:pass:word"},
		{s.PerSecond.Auth, "x"},
		{s.PerSecond.CA, "/ca"},
		{s.Memcache.Addrs, []string{"a:1", "b:2"}},
		{s.Stats.Tags, map[string]string{"env": "prod", "zone": "a"}},
		{s.Counting.NearRatio, float32(0.5)},
		{s.Stats.Statsd, false},
		{s.Stats.Mogrifiers, []Mogrifier{{"a(.*)", "b", map[string]string{"k": "$1"}}}},
		{s.XDS.Headers, map[string]string{"a": "b:c"}},
		{s.Counting.EnvoyKeys, true},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
}

func TestWrongVariables(t *testing.T) {
	for _, tt := range []struct {
		environ string
		want    string
	}{
		{"PORT=http", "PORT: is \"http\": write a whole number between 0 and 65535"},
		{"PORT=70000", "PORT: is \"70000\": write a whole number between 0 and 65535"},
		{"USE_STATSD=yes", "USE_STATSD: is \"yes\": write true or false"},
		{"REDIS_TIMEOUT=10", "REDIS_TIMEOUT: is \"10\": write a duration such as 10s or 1h30m"},
		{"REDIS_TIMEOUT=-1s", "REDIS_TIMEOUT: is \"-1s\": write a duration such as 10s or 1h30m"},
		{"STATS_FLUSH_INTERVAL=0s", "STATS_FLUSH_INTERVAL: write a duration"},
		{"NEAR_LIMIT_RATIO=NaN", "NEAR_LIMIT_RATIO: is \"NaN\": write a number such as 0.8"},
		{"EXTRA_TAGS=env", "EXTRA_TAGS: write name:value pairs separated by commas"},
		{"REDIS_TYPE=clutser", "REDIS_TYPE: is \"clutser\": write SINGLE, SENTINEL, CLUSTER; did you mean CLUSTER?"},
		{"SLUICE_ON_FAILURE=x", "SLUICE_ON_FAILURE: is \"x\": write error, open, closed, local"},
		{"SLUICE_KEY_FORMAT=x", "SLUICE_KEY_FORMAT: is \"x\": write sluice or envoy"},
		{"USE_PROMETHEUS=true", "unable to use more than one stats sink at the same time"},
		{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_USE_TLS needs GRPC_SERVER_TLS_CERT"},
		{"BACKEND_TYPE=memcache", "BACKEND_TYPE=memcache needs MEMCACHE_HOST_PORT"},
		{"REDIS_TYPE=SENTINEL", "REDIS_URL: with REDIS_TYPE=SENTINEL write the primary's name and the sentinels"},
		{"REDIS_PERSECOND=true BACKEND_TYPE=memory", "REDIS_PERSECOND is for BACKEND_TYPE=redis only"},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_TYPE=SENTINEL", "REDIS_PERSECOND_URL: with REDIS_PERSECOND_TYPE=SENTINEL"},
		{"SLUICE_KEY_FORMAT=envoy BACKEND_TYPE=memory", "SLUICE_KEY_FORMAT=envoy is for BACKEND_TYPE=redis and memcache only"},
		{"MEMCACHE_HOST_PORT=a:1 MEMCACHE_SRV=b", "both MEMCACHE_HOST_PORT and MEMCACHE_SRV are set"},
		{"USE_DOG_STATSD_MOGRIFIERS=X", "DOG_STATSD_MOGRIFIER_X_PATTERN and DOG_STATSD_MOGRIFIER_X_NAME: write both"},
	} {
		_, _, err := ReadSettings(strings.Fields(tt.environ))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.environ, err, tt.want)
		}
	}
	_, _, err := ReadSettings([]string{"PORT=a", "GRPC_PORT=b"})
	if err == nil || strings.Count(err.Error(), "write") != 2 {
		t.Errorf("not all errors are reported: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	for _, tt := range []struct{ environ, want string }{
		{"REDIS_POOL_SIZE=50", "REDIS_POOL_SIZE is ignored: one connection is shared"},
		{"REDIS_POOL_SIZE=10", ""}, // the default
		{"TRACING_ENABLED=true", "TRACING_ENABLED is ignored: traces are not supported"},
		{"GRPC_SERVER_TLS_CA_CERT=/ca", "GRPC_SERVER_TLS_CA_CERT is ignored: the reference does not read it either"},
		{"REDIS_ULR=x", "REDIS_ULR is unknown: did you mean REDIS_URL?"},
		{"SLUICE_FOO_BAR_BAZ=x", "SLUICE_FOO_BAR_BAZ is unknown and ignored"},
		{"REDIS_PORT_6379_TCP_ADDR=10.0.0.1", ""},
		{"REDIS_SERVICE_HOST=10.0.0.1", ""},
		{"REDIS_PORT=tcp://10.0.0.1:6379", ""},
		{"HOME=/root", ""},
	} {
		_, warnings, err := ReadSettings([]string{tt.environ})
		got := strings.Join(warnings, "\n")
		if err != nil || !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, %v, want %q", tt.environ, got, err, tt.want)
		}
	}
}

// No message contains the value of a variable that may be secret: that of a text. Others are shown.
func TestTextsAreNeverTold(t *testing.T) {
	var environ []string
	for _, v := range variables {
		isText := v.kind == kindText || v.kind == kindList || v.kind == kindPairs || v.ignored != ""
		if isText && v.name != "USE_DOG_STATSD_MOGRIFIERS" { // its value is part of names of variables
			environ = append(environ, v.name+"=hunter2")
		}
	}
	environ = append(environ, "REDIS_AUHT=hunter2")
	_, warnings, err := ReadSettings(environ)
	if text := fmt.Sprint(warnings, err); strings.Contains(text, "hunter2") || len(warnings) == 0 {
		t.Errorf("a message contains a value: %s", text)
	}
}

func TestVariablesAreListedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range variables {
		if seen[v.name] {
			t.Errorf("%s is listed twice", v.name)
		}
		seen[v.name] = true
		if (v.set == nil) == (v.ignored == "") {
			t.Errorf("%s must be either read or ignored with a reason", v.name)
		}
	}
}

const manual = "../../../../docs/envoy-compatibility.md"

// The manual lists every variable with its default and its difference from the reference.
func TestManualListsVariables(t *testing.T) {
	var b strings.Builder
	b.WriteString("| variable | default | difference from the reference |\n|---|---|---|\n")
	for _, v := range variables {
		initial, here := "", "same"
		if v.initial != "" {
			initial = "`" + v.initial + "`"
		}
		switch {
		case v.ignored != "":
			here = "ignored: " + v.ignored
		case v.own:
			here = "variable of Sluice, see below"
		case v.differs != "":
			here = v.differs
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, initial, here)
	}
	text, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), b.String()) {
		t.Errorf("%s does not contain this table:\n%s", manual, &b)
	}
}
