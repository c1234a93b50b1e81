package authn

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// request returns a request with headers, given as names and values.
func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// keysOf returns keys from a file with one key per user: "key-of-" and the name.
func keysOf(t testing.TB, cfg KeysConfig, more string) *Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	put(t, path, "keys:\n- {user: ada, plan: pro, id: k1, attributes: {team: search}, hash: '"+hashed("key-of-ada")+"'}\n"+more)
	cfg.Files = []string{path}
	k, err := NewKeys(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeys(t *testing.T) {
	more := "- {user: off, disabled: true, hash: '" + hashed("key-of-off") + "'}\n" +
		"- {user: old, expires: 2026-01-01, hash: '" + hashed("key-of-old") + "'}\n" +
		"- {user: new, expires: 2026-01-01T12:00:01Z, hash: '" + hashed("key-of-new") + "'}\n"
	plain := keysOf(t, KeysConfig{}, more)
	bearing := keysOf(t, KeysConfig{Bearer: true, Header: "x-my-key"}, more)
	for _, k := range []*Keys{plain, bearing} {
		k.now = func() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }
	}
	const none, unknown = "none", "guess: the API key is unknown"
	for _, tt := range []struct {
		keys    *Keys
		headers []string
		want    string
	}{
		{plain, []string{"X-Api-Key", "key-of-ada"}, "ada"},
		{plain, []string{"x-api-key", "key-of-ada"}, "ada"},
		{plain, []string{"X-Api-Key", "key-of-new"}, "new"},
		{plain, []string{"X-Api-Key", "key-of-off"}, "the API key is disabled: contact its issuer"},
		{plain, []string{"X-Api-Key", "key-of-old"}, "the API key expired at 2026-01-01T00:00:00Z: request a new one"},
		{plain, []string{"X-Api-Key", "key-of-nobody"}, unknown},
		{plain, []string{"X-Api-Key", ""}, unknown},
		{plain, []string{"X-Api-Key", "KEY-OF-ADA"}, unknown},
		{plain, []string{"X-Api-Key", "key-of-ada "}, unknown},
		{plain, []string{"X-Api-Key", hashed("key-of-ada")}, unknown},
		{plain, []string{"X-Api-Key", strings.Repeat("k", 1025)}, "an API key has at most 1024 bytes"},
		{plain, []string{"X-Api-Key", "key-of-ada", "X-Api-Key", "key-of-ada"}, "the header X-Api-Key is there 2 times: send one"},
		{plain, []string{"X_Api_Key", "key-of-ada"}, none},
		{plain, []string{"Authorization", "Bearer key-of-ada"}, none},
		{plain, nil, none},
		{bearing, []string{"X-My-Key", "key-of-ada"}, "ada"},
		{bearing, []string{"X-Api-Key", "key-of-ada"}, none},
		{bearing, []string{"Authorization", "Bearer key-of-ada"}, "ada"},
		{bearing, []string{"Authorization", "bEARER   key-of-ada"}, "ada"},
		{bearing, []string{"Authorization", "Bearer key-of-nobody"}, unknown},
		{bearing, []string{"Authorization", "Bearer"}, unknown},
		{bearing, []string{"Authorization", "Bearer a.b.c"}, none}, // may be a token
		{bearing, []string{"Authorization", "Basic key-of-ada"}, none},
		{bearing, []string{"Authorization", "Bearer key-of-ada", "Authorization", "Basic x"}, "the header Authorization is there 2 times: send one"},
		{bearing, []string{"Authorization", "Bearer key-of-ada", "X-My-Key", "key-of-ada"}, "there are two API keys, in X-My-Key and Authorization: send one"},
	} {
		id, err := tt.keys.Authenticate(request(tt.headers...))
		if got := verdict(id, err); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.headers, got, tt.want)
		}
	}
	id, _ := plain.Authenticate(request("X-Api-Key", "key-of-ada"))
	want := map[string]string{"user": "ada", "plan": "pro", "id": "k1", "team": "search"}
	if len(id.Attributes) != len(want) {
		t.Errorf("got %v", id.Attributes)
	}
	for name, v := range want {
		if id.Attributes[name] != v {
			t.Errorf("%s is %q", name, id.Attributes[name])
		}
	}
}

// verdict returns the user or the error as text.
func verdict(id Identity, err error) string {
	var wrong *CredentialError
	switch {
	case err == nil:
		return id.User
	case errors.Is(err, ErrNoCredentials):
		return "none"
	case errors.As(err, &wrong) && wrong.Guess:
		return "guess: " + wrong.Reason
	case errors.As(err, &wrong):
		return wrong.Reason
	}
	return err.Error()
}

func TestNewKey(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		key, hash := NewKey()
		if !regexp.MustCompile(`^slk_[a-z2-7]{52}$`).MatchString(key) || hash != hashed(key) || seen[key] {
			t.Fatalf("%s, %s", key, hash)
		}
		seen[key] = true
		if again, err := HashKey(key); err != nil || again != hash {
			t.Errorf("%s, %v", again, err)
		}
	}
	for _, bad := range []string{"", "short", strings.Repeat("x", 1025), " " + strings.Repeat("x", 30), strings.Repeat("x", 30) + "\n"} {
		if _, err := HashKey(bad); err == nil {
			t.Errorf("%q has a hash", bad)
		}
	}
}

// Keys are reloaded under load; an invalid file does not replace a valid one, and each change is logged once.
func TestKeysReloadUnderLoad(t *testing.T) {
	k := keysOf(t, KeysConfig{}, "")
	log := new(logged)
	logger := slog.New(slog.NewTextHandler(log, nil))
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if id, err := k.Authenticate(request("X-Api-Key", "key-of-ada")); err != nil || id.Attributes["user"] != "ada" {
					t.Errorf("got %v, %v", id, err)
					return
				}
			}
		})
	}
	entry := func(user string) string { return "- {user: " + user + ", hash: '" + hashed("key-of-"+user) + "'}\n" }
	for i := range 40 {
		text := "keys:\n" + entry("ada")
		switch i % 4 {
		case 1:
			text += entry("bob")
		case 2:
			text += "- canary\n"
		case 3:
			text = ""
		}
		put(t, k.paths[0], text)
		k.Reload(logger)
		_, err := k.Authenticate(request("X-Api-Key", "key-of-bob"))
		if known := err == nil; known != (i%4 != 0) {
			t.Errorf("%d: bob is known: %v", i, known)
		}
	}
	close(stop)
	asking.Wait()
	if n := log.count("API keys invalid: last valid content stays in use"); n != 20 {
		t.Errorf("it is said %d times that a file is bad", n)
	}
	k.Reload(logger)
	if n := log.count("stays in use"); n != 20 {
		t.Error("it is said again of a file that did not change")
	}
	if log.count("canary") > 0 {
		t.Error("a secret is logged")
	}
}

// logged collects log lines.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}
