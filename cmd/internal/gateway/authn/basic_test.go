package authn

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluiceproject/sluice/internal/bounds"
)

func credentials(text string) *http.Request {
	return request("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(text)))
}

func usersOf(t testing.TB, text string) *Basic {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.yaml")
	put(t, path, "users:\n"+text)
	b, err := NewBasic(BasicConfig{Files: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func user(name, hash, more string) string {
	return fmt.Sprintf("- {user: %s, plan: pro, hash: %q%s}\n", name, hash, more)
}

// Real hashes, of lower cost than allowed in files. The other tests count computations instead.
func TestPasswords(t *testing.T) {
	b := usersOf(t, user("ada", fakeHash(10, "a"), ""))
	long := strings.Repeat("x", 72) // bcrypt ignores the rest
	hash, err := bcrypt.GenerateFromPassword([]byte(long), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	b.live.Load().byName["ada"].hash = string(hash)
	for text, want := range map[string]string{"ada:" + long: "ada", "ada:" + long + "x": "guess: the name or the password is wrong"} {
		if got := verdict(b.Authenticate(credentials(text))); got != want {
			t.Errorf("%d bytes: got %s", len(text), got)
		}
	}
	hash, err = bcrypt.GenerateFromPassword([]byte("correct horse"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	b.live.Load().byName["ada"].hash = string(hash)
	b.live.Load().dummy = []string{dummyHash(bcrypt.MinCost)}
	const wrong = "guess: the name or the password is wrong"
	for text, want := range map[string]string{
		"ada:correct horse": "ada", "ada:correct Horse": wrong, "bob:correct horse": wrong,
	} {
		id, err := b.Authenticate(credentials(text))
		if got := verdict(id, err); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		if want == "ada" && id.Attributes["plan"] != "pro" {
			t.Errorf("got %v", id)
		}
	}
	if cost, err := bcrypt.Cost([]byte(dummyHash(11))); cost != 11 || err != nil {
		t.Errorf("a dummy costs %d, %v", cost, err)
	}
	if err := bcrypt.CompareHashAndPassword([]byte(dummyHash(bcrypt.MinCost)), []byte("x")); !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		t.Errorf("a dummy is not looked at in full: %v", err)
	}
	for _, bad := range []string{"short", strings.Repeat("x", 73)} {
		if _, err := HashPassword(bad, minPasswordCost); err == nil {
			t.Errorf("%q is hashed", bad)
		}
	}
	if _, err := HashPassword("correct horse", bcrypt.MinCost); err == nil {
		t.Error("a cheap hash is made")
	}
}

// counted replaces bcrypt: it records the cost of each computation and compares texts, so the hash of ada is her password.
func counted(b *Basic) *[]int {
	var mu sync.Mutex
	costs := new([]int)
	b.compare = func(hash, password []byte) error {
		mu.Lock()
		defer mu.Unlock()
		cost, _ := bcrypt.Cost(hash)
		*costs = append(*costs, cost)
		if string(hash) == string(password) {
			return nil
		}
		return bcrypt.ErrMismatchedHashAndPassword
	}
	return costs
}

func fakeHash(cost int, letter string) string {
	return fmt.Sprintf("$2a$%d$%s", cost, strings.Repeat(letter, 53))
}

// Every check computes one hash, and an unknown user has the cost of a known one, always the same.
func TestPasswordsCostTheSame(t *testing.T) {
	ten, twelve := fakeHash(10, "a"), fakeHash(12, "b")
	b := usersOf(t, user("ada", ten, "")+user("bob", twelve, "")+user("off", fakeHash(10, "c"), ", disabled: true"))
	costs := counted(b)
	ask := func(text string) (string, int) {
		*costs = nil
		got := verdict(b.Authenticate(credentials(text)))
		if len(*costs) != 1 {
			t.Fatalf("%s: %d hashes are computed", text, len(*costs))
		}
		return got, (*costs)[0]
	}
	const wrong = "guess: the name or the password is wrong"
	for text, want := range map[string]string{
		"ada:x": wrong, "ada:": wrong, "bob:x": wrong, "off:x": wrong, "nobody:x": wrong, ":": wrong, "ada:" + twelve: wrong,
		"ada:" + strings.Repeat("x", 80): wrong, "nobody:" + strings.Repeat("x", 80): wrong,
		"ada:" + ten: "ada", "off:" + fakeHash(10, "c"): "the password is disabled: contact its issuer",
	} {
		if got, _ := ask(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	seen := map[int]int{}
	for i := range 300 {
		name := fmt.Sprintf("nobody%d:x", i)
		_, cost := ask(name)
		if _, again := ask(name); again != cost {
			t.Fatalf("%s costs %d, then %d", name, cost, again)
		}
		seen[cost]++
	}
	if seen[10] < 150 || seen[12] < 60 { // 2/3 and 1/3 of the names
		t.Errorf("who does not exist costs %v", seen)
	}
	if verdict(b.Authenticate(credentials("nobody:"+b.live.Load().dummy[0]))) == "nobody" {
		t.Error("who knows the dummy is in")
	}
}

func TestBasicHeaders(t *testing.T) {
	b := usersOf(t, user("ada", fakeHash(10, "a"), ""))
	counted(b)
	right := base64.StdEncoding.EncodeToString([]byte("ada:" + fakeHash(10, "a")))
	const unreadable = "the credentials cannot be read: send name:password in base64"
	for _, tt := range []struct {
		headers []string
		want    string
	}{
		{[]string{"Authorization", "Basic " + right}, "ada"},
		{[]string{"Authorization", "bAsIc " + right}, "ada"},
		{[]string{"Authorization", "Bearer " + right}, "none"},
		{nil, "none"},
		{[]string{"Authorization", "Basic"}, unreadable},
		{[]string{"Authorization", "Basic !!"}, unreadable},
		{[]string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("ada"))}, unreadable},
		{[]string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:"+strings.Repeat("x", 2000)))}, unreadable},
		{[]string{"Authorization", "Basic " + right, "Authorization", "Basic " + right}, "the header Authorization is there 2 times: send one"},
	} {
		if got := verdict(b.Authenticate(request(tt.headers...))); got != tt.want {
			t.Errorf("%.60q: got %s, want %s", tt.headers, got, tt.want)
		}
	}
	for _, realm := range []string{`a"b`, "a\r\nb", `a\b`} {
		if _, err := NewBasic(BasicConfig{Files: b.paths, Realm: realm}); err == nil {
			t.Errorf("the realm %q is taken", realm)
		}
	}
}

// Right passwords are cached for a while, in bounded memory, and not after the password has changed.
func TestPasswordsAreCached(t *testing.T) {
	b := usersOf(t, user("ada", fakeHash(10, "a"), ""))
	now := time.Unix(1000, 0)
	b.now = func() time.Time { return now }
	costs := counted(b)
	ask := func(text string, want string, computed int) {
		t.Helper()
		*costs = nil
		if got := verdict(b.Authenticate(credentials(text))); got != want || len(*costs) != computed {
			t.Errorf("%s: got %s and %d hashes, want %s and %d", text, got, len(*costs), want, computed)
		}
	}
	right := "ada:" + fakeHash(10, "a")
	const wrong = "guess: the name or the password is wrong"
	ask(right, "ada", 1)
	ask(right, "ada", 0)
	ask("ada:x", wrong, 1)
	ask("ada:x", wrong, 1)
	now = now.Add(digestTTL)
	ask(right, "ada", 1)
	ask(right, "ada", 0)
	put(t, b.paths[0], "users:\n"+user("ada", fakeHash(10, "b"), ""))
	b.Reload(slog.New(slog.DiscardHandler))
	ask(right, wrong, 1)
	put(t, b.paths[0], "users:\n"+user("ada", fakeHash(10, "a"), ", disabled: true"))
	b.Reload(slog.New(slog.DiscardHandler))
	ask(right, "the password is disabled: contact its issuer", 0)

	var m digestCache
	for i := range 3 * maxCachedDigests {
		m.add(b.sum(fmt.Sprint(i)), now)
		if len(m.all) > maxCachedDigests || !m.has(b.sum(fmt.Sprint(i)), now) {
			t.Fatalf("%d are remembered", len(m.all))
		}
	}
	if m.has(b.sum(fmt.Sprint(3*maxCachedDigests-1)), now.Add(digestTTL)) {
		t.Error("it is remembered for too long")
	}
}

// The number of concurrent hash computations is bounded; other checks wait and then fail with ErrBusy.
func TestPasswordsAtOnce(t *testing.T) {
	b := usersOf(t, user("ada", fakeHash(10, "a"), ""))
	synctest.Test(t, func(t *testing.T) {
		b.slots = make(chan struct{}, 2)
		computing := 0
		release := make(chan struct{})
		var mu sync.Mutex
		b.compare = func(_, _ []byte) error {
			mu.Lock()
			computing++
			mu.Unlock()
			<-release
			return bcrypt.ErrMismatchedHashAndPassword
		}
		was := bounds.CredentialChecks.Count()
		answers := make(chan error, 10)
		for range 5 {
			go func() {
				_, err := b.Authenticate(credentials("ada:x"))
				answers <- err
			}()
		}
		synctest.Wait()
		if computing != 2 {
			t.Errorf("%d at once", computing)
		}
		began := time.Now()
		for range 3 {
			if err := <-answers; !errors.Is(err, ErrBusy) || time.Since(began) != passwordWait {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Authenticate(credentials("ada:x").WithContext(ctx)); !errors.Is(err, ErrBusy) {
			t.Errorf("who left: %v", err)
		}
		if n := bounds.CredentialChecks.Count() - was; n != 3 {
			t.Errorf("the bound was reached %d times, want 3: not by who left", n)
		}
		close(release)
		for range 2 {
			if err := <-answers; errors.Is(err, ErrBusy) {
				t.Error(err)
			}
		}
	})
}
