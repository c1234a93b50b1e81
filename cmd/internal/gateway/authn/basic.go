package authn

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// BasicConfig is the configuration of [Basic].
type BasicConfig struct {
	Files   []string
	Realm   string // shown by browsers; default Sluice
	Forward bool   // forward names and passwords
}

// Basic authenticates requests by user name and password. Account files contain bcrypt hashes of the passwords.
//
// An unknown user takes as much time as a known one, so that timing does not reveal users. A hash takes tens of milliseconds on
// purpose, so right passwords are cached for a while and the number of concurrent computations is bounded.
type Basic struct {
	files
	info   MethodInfo
	secret []byte // key of cached digests and of the choice of dummy hashes
	now    func() time.Time
	live   atomic.Pointer[users]
	right  digestCache
	slots  chan struct{}
	// compare is bcrypt.CompareHashAndPassword, except in tests.
	compare func(hash, password []byte) error
}

// users are the users of all files.
type users struct {
	byName map[string]*entry
	dummy  []string // hashes without a password, with the same distribution of costs as those of users
}

const (
	minPasswordCost, maxPasswordCost = 10, 14
	// DefaultCost is the bcrypt cost of new hashes.
	DefaultCost      = 12
	maxPasswordBytes = 72 // bcrypt ignores the rest
	passwordWait     = 2 * time.Second
)

var basicPlace = Place{Header: "Authorization", Scheme: "Basic"}

// NewBasic reads the files. Its error joins all errors of the files, each a [*rules.Error].
func NewBasic(cfg BasicConfig) (*Basic, error) {
	if cfg.Realm == "" {
		cfg.Realm = "Sluice"
	}
	if strings.ContainsAny(cfg.Realm, "\"\\") || !sendable(cfg.Realm) {
		return nil, errors.New("realm: write it without quotes and line breaks")
	}
	b := &Basic{
		now: time.Now, compare: bcrypt.CompareHashAndPassword, secret: make([]byte, sha256.Size), slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		info: MethodInfo{Challenge: fmt.Sprintf(`Basic realm="%s", charset="UTF-8"`, cfg.Realm), Places: []Place{basicPlace}, Forward: cfg.Forward},
	}
	_, _ = rand.Read(b.secret) // never fails
	b.files = files{what: "users", paths: cfg.Files, maxBytes: strictyaml.MaxBytes, use: b.use}
	if _, err := b.load(); err != nil {
		return nil, err
	}
	return b, nil
}

var userKind = kind{
	list: "users", one: "a user", hash: checkPasswordHash, unique: true,
	secret: map[string]string{"password": plainPassword, "pass": plainPassword, "secret": plainPassword},
}

const plainPassword = "every reader of this file can use a password in plain text: write hash: with the output of `sluice password`, and remove the password"

func checkPasswordHash(text string) string {
	cost, err := bcrypt.Cost([]byte(text))
	switch {
	case err != nil || len(text) != 60:
		return "hash: write a bcrypt hash, as `sluice password` prints. If this is the password itself, every reader of this file can use it"
	case cost < minPasswordCost || cost > maxPasswordCost:
		return fmt.Sprintf("hash: the cost is %d: below %d guessing is too cheap, above %d checking takes too much CPU time: hash the password with `sluice password`", cost, minPasswordCost, maxPasswordCost)
	}
	return ""
}

// use replaces the users by those in the content of the files.
func (b *Basic) use(content [][]byte) error {
	all, err := readAccounts(&userKind, b.paths, content)
	if err != nil {
		return err
	}
	u := &users{byName: make(map[string]*entry, len(all))}
	dummies := map[int]string{}
	for i := range all {
		if strings.Contains(all[i].identity.User, ":") {
			reader := reader{file: all[i].file}
			reader.fault(&strictyaml.Node{Line: all[i].line, Column: 1}, "user: the name of a user with a password must not contain a colon")
			return reader.faults[0]
		}
		u.byName[all[i].identity.User] = &all[i]
		cost, _ := bcrypt.Cost([]byte(all[i].hash)) // cannot fail: already checked
		if dummies[cost] == "" {
			dummies[cost] = dummyHash(cost)
		}
		u.dummy = append(u.dummy, dummies[cost])
	}
	if len(u.dummy) == 0 {
		u.dummy = []string{dummyHash(minPasswordCost)}
	}
	b.live.Store(u)
	return nil
}

// dummyHash returns a well-formed hash that matches no password.
func dummyHash(cost int) string {
	return fmt.Sprintf("$2a$%02d$%s", cost, "sLuiceKnowsNobodyOfThaOT"[:22]+strings.Repeat("A", 31))
}

// Len returns the number of users.
func (b *Basic) Len() int { return len(b.live.Load().byName) }

// Info implements [Method].
func (b *Basic) Info() *MethodInfo { return &b.info }

// Authenticate implements [Method].
func (b *Basic) Authenticate(r *http.Request) (Identity, error) {
	text, err := basicPlace.read(r.Header)
	if err != nil {
		return Identity{}, err
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	name, password, both := strings.Cut(string(decoded), ":")
	if err != nil || !both || len(decoded) > maxKeyBytes {
		return Identity{}, stale("the credentials cannot be read: send name:password in base64")
	}
	u := b.live.Load()
	known := u.byName[name]
	hash := u.dummy[b.pick(name, len(u.dummy))]
	if known != nil {
		hash = known.hash
	}
	right, err := b.verify(r.Context(), name, password, hash)
	switch {
	case err != nil:
		return Identity{}, err
	case !right || known == nil:
		return Identity{}, guess("the name or the password is wrong")
	}
	if err := known.usable("the password", b.now()); err != nil {
		return Identity{}, err
	}
	id := known.identity
	id.forwarded = basicPlace
	return id, nil
}

// pick returns a number below n that depends only on the name.
func (b *Basic) pick(name string, n int) int {
	sum := b.sum("pick", name)
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n))
}

// sum returns a keyed digest of texts.
func (b *Basic) sum(texts ...string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, b.secret)
	for _, t := range texts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(t)))
		h.Write(size[:])
		h.Write([]byte(t))
	}
	h.Sum(sum[:0])
	return sum
}

// verify returns whether a hash matches a password.
func (b *Basic) verify(ctx context.Context, name, password, hash string) (bool, error) {
	sum := b.sum("right", name, password, hash)
	if b.right.has(sum, b.now()) {
		return true, nil
	}
	waiting, cancel := context.WithTimeout(ctx, passwordWait)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-waiting.Done():
		if ctx.Err() == nil { // the client has not left
			bounds.CredentialChecks.Reached()
		}
		return false, ErrBusy
	}
	short := password[:min(len(password), maxPasswordBytes)]
	if b.compare([]byte(hash), []byte(short)) != nil || len(password) > maxPasswordBytes {
		return false, nil
	}
	b.right.add(sum, b.now())
	return true, nil
}

// HashPassword returns the hash of a password for an account file.
func HashPassword(password string, cost int) (string, error) {
	const least = 8
	switch {
	case len(password) < least:
		return "", fmt.Errorf("the password has %d bytes and can be guessed: use at least %d", len(password), least)
	case len(password) > maxPasswordBytes:
		return "", fmt.Errorf("the password has %d bytes: bcrypt uses at most %d", len(password), maxPasswordBytes)
	case cost < minPasswordCost || cost > maxPasswordCost:
		return "", fmt.Errorf("the cost must be between %d and %d", minPasswordCost, maxPasswordCost)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	return string(hash), err
}
