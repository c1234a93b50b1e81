package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// signers are the keys of an issuer, generated once.
var signers = sync.OnceValue(func() (s struct {
	rsa, other *rsa.PrivateKey
	ec         *ecdsa.PrivateKey
	ed         ed25519.PrivateKey
},
) {
	s.rsa, _ = rsa.GenerateKey(rand.Reader, 2048)
	s.other, _ = rsa.GenerateKey(rand.Reader, 2048)
	s.ec, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, s.ed, _ = ed25519.GenerateKey(rand.Reader)
	return s
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func rsaJWK(kid string, k *rsa.PublicKey, more string) string {
	return fmt.Sprintf(`{"kty":"RSA","kid":%q,"n":%q,"e":%q%s}`, kid, b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes()), more)
}

func ecJWK(kid string, k *ecdsa.PublicKey) string {
	p, _ := k.Bytes()
	return fmt.Sprintf(`{"kty":"EC","kid":%q,"crv":"P-256","x":%q,"y":%q}`, kid, b64(p[1:33]), b64(p[33:]))
}

func edJWK(kid string, k ed25519.PrivateKey) string {
	return fmt.Sprintf(`{"kty":"OKP","kid":%q,"crv":"Ed25519","x":%q}`, kid, b64(k.Public().(ed25519.PublicKey)))
}

func keySet(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// sign returns a token with the given header and claims.
func sign(t testing.TB, header, claims map[string]any, by any) string {
	t.Helper()
	c, _ := json.Marshal(claims)
	return signText(t, header, string(c), by)
}

// signText returns a token whose claims are any text.
func signText(t testing.TB, header map[string]any, claims string, by any) string {
	t.Helper()
	h, _ := json.Marshal(header)
	c := []byte(claims)
	text := b64(h) + "." + b64(c)
	alg, _ := header["alg"].(string)
	if by == nil {
		return text + "."
	}
	sum := sha256.Sum256([]byte(text))
	var sig []byte
	var err error
	switch k := by.(type) {
	case *rsa.PrivateKey:
		if strings.HasPrefix(alg, "PS") {
			sig, err = rsa.SignPSS(rand.Reader, k, crypto.SHA256, sum[:], nil)
		} else {
			sig, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
		}
	case *ecdsa.PrivateKey:
		r, s, e := ecdsa.Sign(rand.Reader, k, sum[:])
		sig, err = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...), e
	case ed25519.PrivateKey:
		sig = ed25519.Sign(k, []byte(text))
	case []byte:
		m := hmac.New(sha256.New, k)
		m.Write([]byte(text))
		sig = m.Sum(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(sig)
}

// claims returns the claims of ada with some replaced; nil removes one.
func claims(edit ...any) map[string]any {
	c := map[string]any{
		"sub": "ada", "plan": "pro", "iss": "https://issuer.example", "aud": []string{"api", "other"}, "exp": time.Now().Add(time.Hour).Unix(),
	}
	for i := 0; i < len(edit); i += 2 {
		if edit[i+1] == nil {
			delete(c, edit[i].(string))
		} else {
			c[edit[i].(string)] = edit[i+1]
		}
	}
	return c
}

func head(alg string, edit ...any) map[string]any {
	h := map[string]any{"alg": alg, "typ": "JWT"}
	for i := 0; i < len(edit); i += 2 {
		h[edit[i].(string)] = edit[i+1]
	}
	return h
}

func newJWT(t testing.TB, cfg JWTConfig, set string) *JWT {
	t.Helper()
	if set != "" {
		cfg.KeySetFile = filepath.Join(t.TempDir(), "jwks.json")
		put(t, cfg.KeySetFile, set)
	}
	j, err := NewJWT(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

const (
	badSignature = "guess: the token is not signed by a known key"
	unreadable   = "guess: the token cannot be read: send a signed JWT"
)

// Invalid tokens are rejected.
func TestTokens(t *testing.T) {
	s := signers()
	public, err := x509.MarshalPKIXPublicKey(&s.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	set := keySet(rsaJWK("r1", &s.rsa.PublicKey, ""), ecJWK("e1", &s.ec.PublicKey), edJWK("d1", s.ed))
	j := newJWT(t, JWTConfig{
		Algorithms: []string{"RS256", "ES256", "EdDSA"}, Issuer: "https://issuer.example", Audience: []string{"api"}, Leeway: 30 * time.Second,
	}, set)
	good := sign(t, head("RS256", "kid", "r1"), claims(), s.rsa)
	parts := strings.Split(good, ".")
	soon := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for name, tt := range map[string]struct{ token, want string }{
		"RS256":                         {good, "ada"},
		"ES256":                         {sign(t, head("ES256", "kid", "e1"), claims(), s.ec), "ada"},
		"EdDSA":                         {sign(t, head("EdDSA", "kid", "d1"), claims(), s.ed), "ada"},
		"without a name of a key":       {sign(t, head("RS256"), claims(), s.rsa), "ada"},
		"one audience":                  {sign(t, head("RS256"), claims("aud", "api"), s.rsa), "ada"},
		"expired within leeway":         {sign(t, head("RS256"), claims("exp", soon(-10*time.Second)), s.rsa), "ada"},
		"jku and the like are not read": {sign(t, head("RS256", "kid", "r1", "jku", "http://127.0.0.1:1/", "x5u", "http://127.0.0.1:1/"), claims(), s.rsa), "ada"},

		"alg none":                           {sign(t, head("none"), claims(), nil), badSignature},
		"alg None":                           {sign(t, head("None"), claims(), nil), badSignature},
		"alg none with a signature":          {strings.Join([]string{b64([]byte(`{"alg":"none"}`)), parts[1], parts[2]}, "."), badSignature},
		"no alg":                             {sign(t, map[string]any{"typ": "JWT"}, claims(), s.rsa), "guess:"},
		"alg is a list":                      {sign(t, map[string]any{"alg": []string{"RS256"}}, claims(), s.rsa), "guess:"},
		"alg in small letters":               {sign(t, head("rs256"), claims(), s.rsa), "guess:"},
		"HS256 with the public key, PEM":     {sign(t, head("HS256", "kid", "r1"), claims(), publicPEM), badSignature},
		"HS256 with the public key, DER":     {sign(t, head("HS256", "kid", "r1"), claims(), public), badSignature},
		"HS256 with the public key's number": {sign(t, head("HS256", "kid", "r1"), claims(), s.rsa.N.Bytes()), badSignature},
		"HS256 with nothing":                 {sign(t, head("HS256"), claims(), []byte{}), badSignature},
		"PS256, which is not pinned":         {sign(t, head("PS256", "kid", "r1"), claims(), s.rsa), badSignature},
		"RS256 and another's name":           {sign(t, head("RS256", "kid", "e1"), claims(), s.rsa), badSignature},
		"ES256 with an RSA key's name":       {sign(t, head("ES256", "kid", "r1"), claims(), s.ec), badSignature},
		"ES256 with nothing":                 {strings.Join([]string{b64([]byte(`{"alg":"ES256","kid":"e1"}`)), parts[1], b64(make([]byte, 64))}, "."), badSignature},
		"another issuer's key":               {sign(t, head("RS256", "kid", "r1"), claims(), s.other), badSignature},
		"another issuer's key, in the token": {sign(t, head("RS256", "kid", "r1", "jwk", json.RawMessage(rsaJWK("r1", &s.other.PublicKey, ""))), claims(), s.other), badSignature},
		"a name that is a path":              {sign(t, head("RS256", "kid", "../../../../dev/null"), claims(), s.rsa), badSignature},
		"a name that is an injection":        {sign(t, head("RS256", "kid", "x' UNION SELECT 'k"), claims(), s.rsa), badSignature},
		"a name that is a number":            {sign(t, head("RS256", "kid", 7), claims(), s.other), badSignature},
		"crit":                               {sign(t, head("RS256", "kid", "r1", "crit", []string{"b64"}, "b64", false), claims(), s.rsa), badSignature},
		"other claims, old signature":        {strings.Join([]string{parts[0], b64([]byte(`{"sub":"root","exp":9999999999}`)), parts[2]}, "."), badSignature},
		"no signature":                       {parts[0] + "." + parts[1] + ".", badSignature},
		"two parts":                          {parts[0] + "." + parts[1], unreadable},
		"five parts":                         {good + ".x.y", unreadable},
		"nothing":                            {"", unreadable},
		"dots":                               {"..", unreadable},
		"no base64":                          {"!.!.!", unreadable},
		"padded":                             {parts[0] + "=." + parts[1] + "." + parts[2], unreadable},
		"a line break":                       {parts[0] + "\n." + parts[1] + "." + parts[2], badSignature},
		"Bearer twice":                       {"Bearer " + good, unreadable},
		"huge":                               {strings.Repeat("a", 8193), "the token has more than 8192 bytes"},
		"claims that are a list":             {b64([]byte(`{"alg":"RS256"}`)) + "." + b64([]byte(`[]`)) + ".x", unreadable},

		"expired":              {sign(t, head("RS256"), claims("exp", soon(-time.Minute)), s.rsa), "the token expired: request a new one"},
		"without exp":          {sign(t, head("RS256"), claims("exp", nil), s.rsa), "the token lacks exp or another required claim"},
		"exp is a text":        {sign(t, head("RS256"), claims("exp", "never"), s.rsa), "the claims of the token are invalid"},
		"not yet":              {sign(t, head("RS256"), claims("nbf", soon(time.Minute)), s.rsa), "the token is not valid yet: check the clock of its issuer"},
		"another issuer":       {sign(t, head("RS256"), claims("iss", "https://evil.example"), s.rsa), "the issuer of the token is not accepted"},
		"no issuer":            {sign(t, head("RS256"), claims("iss", nil), s.rsa), "the token"},
		"another audience":     {sign(t, head("RS256"), claims("aud", "apis"), s.rsa), "the audience of the token is not accepted"},
		"no audience":          {sign(t, head("RS256"), claims("aud", nil), s.rsa), "the token"},
		"nobody":               {sign(t, head("RS256"), claims("sub", nil), s.rsa), "the token has no user"},
		"spaces around nobody": {sign(t, head("RS256"), claims("sub", " ada"), s.rsa), "the token has no user"},
		"a line break in it":   {sign(t, head("RS256"), claims("sub", "ada\r\nX-Admin: 1"), s.rsa), "the token has no user"},
		"says too much":        {sign(t, head("RS256"), claims("x", strings.Repeat("x", 4097)), s.rsa), "the token has too many claims"},
	} {
		id, err := j.Authenticate(request("Authorization", "Bearer "+tt.token))
		if got := verdict(id, err); got != tt.want && !(tt.want != "ada" && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
	for name, headers := range map[string][]string{
		"none":  {"Authorization", "Basic " + good},
		"none ": {"X-Api-Key", good},
		"the header Authorization is there 2 times: send one": {"Authorization", "Bearer " + good, "Authorization", "Bearer " + good},
	} {
		if got := verdict(j.Authenticate(request(headers...))); got != strings.TrimSpace(name) {
			t.Errorf("%s: got %s", name, got)
		}
	}
	id, _ := j.Authenticate(request("Authorization", "Bearer "+good))
	if id.Claims["aud.1"] != "other" || id.Claims["plan"] != "pro" || id.Attributes["plan"] != "pro" || id.Attributes["user"] != "ada" {
		t.Errorf("got %v", id)
	}
}

// Claims must be exactly one object without duplicate names, and the user must be a string. A token that an upstream could read
// differently is rejected.
func TestDoubtfulClaims(t *testing.T) {
	s := signers()
	j := newJWT(t, JWTConfig{Algorithms: []string{"RS256"}}, keySet(rsaJWK("r1", &s.rsa.PublicKey, "")))
	b, err := os.ReadFile("testdata/claims.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		text, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		id, err := j.Authenticate(request("Authorization", "Bearer "+signText(t, head("RS256", "kid", "r1"), text, s.rsa)))
		if got := id.User; got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	if n < 20 {
		t.Errorf("there are %d", n)
	}
}

func TestSharedSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	secret := strings.Repeat("s", 32)
	put(t, path, secret+"\n")
	j := newJWT(t, JWTConfig{Algorithms: []string{"HS256"}, SecretFile: path, UserClaim: "user.name", PlanClaim: "tier", Strip: true}, "")
	token := sign(t, head("HS256"), claims("user", map[string]any{"name": "bob"}, "tier", 3), []byte(secret))
	id, err := j.Authenticate(request("Authorization", "Bearer "+token))
	if err != nil || id.User != "bob" || id.Attributes["plan"] != "3" {
		t.Errorf("got %v, %v", id, err)
	}
	for name, bad := range map[string]string{
		"none":            sign(t, head("none"), claims(), nil),
		"with a newline":  sign(t, head("HS256"), claims(), []byte(secret+"\n")),
		"HS512 by HS256":  sign(t, head("HS512"), claims(), []byte(secret)),
		"signed with RSA": sign(t, head("RS256"), claims(), signers().rsa),
	} {
		if got := verdict(j.Authenticate(request("Authorization", "Bearer "+bad))); got != badSignature {
			t.Errorf("%s: got %s", name, got)
		}
	}
	put(t, path, strings.Repeat("n", 40))
	j.Reload(slog.New(slog.DiscardHandler))
	if got := verdict(j.Authenticate(request("Authorization", "Bearer "+token))); got != badSignature {
		t.Errorf("after the secret changed: %s", got)
	}
	put(t, path, "short")
	log := new(logged)
	j.Reload(slog.New(slog.NewTextHandler(log, nil)))
	token = sign(t, head("HS256"), claims("user", map[string]any{"name": "bob"}), []byte(strings.Repeat("n", 40)))
	if got := verdict(j.Authenticate(request("Authorization", "Bearer "+token))); got != "bob" || log.count("last valid content stays in use") != 1 {
		t.Errorf("a secret that is too short: %s", got)
	}
}

func TestWrongJWT(t *testing.T) {
	d := t.TempDir()
	file := func(name, text string) string {
		put(t, filepath.Join(d, name), text)
		return filepath.Join(d, name)
	}
	short, secret, bad := file("short", "x"), file("secret", strings.Repeat("x", 32)), file("bad", "canary")
	url := func(u string) *KeySetURL { return &KeySetURL{URL: u} }
	rs := []string{"RS256"}
	for _, tt := range []struct {
		cfg  JWTConfig
		want string
	}{
		{JWTConfig{KeySetFile: bad}, "there are no algorithms"},
		{JWTConfig{Algorithms: []string{"none"}, KeySetFile: bad}, "there is no algorithm"},
		{JWTConfig{Algorithms: []string{"RS256", "HS256"}, KeySetFile: bad}, "write one kind only"},
		{JWTConfig{Algorithms: rs}, "write one of"},
		{JWTConfig{Algorithms: rs, KeySetFile: bad, KeySetURL: url("https://x")}, "write one of"},
		{JWTConfig{Algorithms: rs, SecretFile: secret}, "need secret_file, all others need"},
		{JWTConfig{Algorithms: []string{"HS256"}, KeySetFile: bad}, "need secret_file, all others need"},
		{JWTConfig{Algorithms: []string{"HS256"}, SecretFile: short}, "can be guessed"},
		{JWTConfig{Algorithms: rs, KeySetFile: bad}, "not a JWKS"},
		{JWTConfig{Algorithms: rs, KeySetFile: d + "/none"}, "there is no such file"},
		{JWTConfig{Algorithms: rs, KeySetURL: url("http://issuer.example/jwks")}, "allow_insecure_jwks_url"},
		{JWTConfig{Algorithms: rs, KeySetURL: url("http://127.0.0.1.example/jwks")}, "allow_insecure_jwks_url"},
		{JWTConfig{Algorithms: rs, KeySetURL: url("ftp://issuer.example/jwks")}, "jwks_url"},
		{JWTConfig{Algorithms: rs, KeySetURL: url("jwks.json")}, "jwks_url"},
		{JWTConfig{Algorithms: rs, KeySetURL: &KeySetURL{URL: "https://x", CA: bad}}, "no certificate found"},
	} {
		if _, err := NewJWT(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: got %v, want %s", tt.cfg, err, tt.want)
		}
	}
	for _, fine := range []string{"https://issuer.example/jwks", "http://127.0.0.1:8080/jwks", "http://[::1]/jwks", "http://localhost/jwks"} {
		if _, err := NewJWT(JWTConfig{Algorithms: rs, KeySetURL: url(fine)}); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
}

func TestKeySets(t *testing.T) {
	s := signers()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Log(err) // the library does not generate such keys
		small = &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537}}
	}
	for name, tt := range map[string]struct{ set, want string }{
		"RSA":                 {keySet(rsaJWK("a", &s.rsa.PublicKey, "")), "1"},
		"for signatures":      {keySet(rsaJWK("a", &s.rsa.PublicKey, `,"use":"sig","key_ops":["verify"],"alg":"RS256"`)), "1"},
		"others are left":     {keySet(rsaJWK("a", &s.rsa.PublicKey, ""), `{"kty":"oct","k":"canary"}`, `{"kty":"new"}`), "1"},
		"for encryption":      {keySet(rsaJWK("a", &s.rsa.PublicKey, `,"use":"enc"`)), "not for signatures"},
		"for signing":         {keySet(rsaJWK("a", &s.rsa.PublicKey, `,"key_ops":["sign"]`)), "not for signatures"},
		"alg of another":      {keySet(rsaJWK("a", &s.rsa.PublicKey, `,"alg":"HS256"`)), "alg does not match kty"},
		"alg none":            {keySet(rsaJWK("a", &s.rsa.PublicKey, `,"alg":"none"`)), "alg does not match kty"},
		"a secret":            {keySet(`{"kty":"oct","k":"canary"}`), "use secret_file"},
		"a small key":         {keySet(rsaJWK("a", &small.PublicKey, "")), "bits"},
		"a large key":         {keySet(rsaJWK("a", &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 8192), E: 3}, "")), "bits"},
		"a huge key":          {keySet(rsaJWK("a", &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 99999), E: 3}, "")), "base64url"},
		"exponent 1":          {keySet(rsaJWK("a", &rsa.PublicKey{N: s.rsa.N, E: 1}, "")), "exponent"},
		"exponent 2":          {keySet(rsaJWK("a", &rsa.PublicKey{N: s.rsa.N, E: 2}, "")), "exponent"},
		"not on the curve":    {keySet(strings.Replace(ecJWK("e", &s.ec.PublicKey), `"y":"`, `"y":"AAAA`, 1)), "32 bytes"},
		"another point":       {keySet(fmt.Sprintf(`{"kty":"EC","crv":"P-256","x":%q,"y":%q}`, b64(make([]byte, 32)), b64(make([]byte, 32)))), "not on the curve"},
		"another curve":       {keySet(`{"kty":"EC","crv":"secp256k1","x":"","y":""}`), "crv is none of"},
		"Ed448":               {keySet(`{"kty":"OKP","crv":"Ed448","x":""}`), "Ed25519"},
		"none":                {keySet(), "has no keys"},
		"another value":       {`{"keys":"canary"}`, "not a JWKS"},
		"a list":              {`[]`, "not a JWKS"},
		"too many":            {keySet(strings.Split(strings.Repeat(`{"kty":"RSA"},`, 100)+`{"kty":"RSA"}`, ",")...), "more than 100"},
		"too long":            {strings.Repeat(" ", 256<<10+1), "bytes"},
		"text behind the set": {keySet(rsaJWK("a", &s.rsa.PublicKey, "")) + "x", "not a JWKS"},
	} {
		keys, err := parseKeySet([]byte(tt.set))
		got := fmt.Sprint(len(keys))
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && !strings.Contains(got, tt.want) || strings.Contains(got, "canary") {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}

// A key with alg is used for no other algorithm, even if it could be.
func TestKeyForOneAlgorithm(t *testing.T) {
	s := signers()
	j := newJWT(t, JWTConfig{Algorithms: []string{"RS256", "PS256"}}, keySet(rsaJWK("r", &s.rsa.PublicKey, `,"alg":"RS256"`)))
	for alg, want := range map[string]string{"RS256": "ada", "PS256": badSignature} {
		if got := verdict(j.Authenticate(request("Authorization", "Bearer "+sign(t, head(alg, "kid", "r"), claims(), s.rsa)))); got != want {
			t.Errorf("%s: got %s", alg, got)
		}
	}
}

// The number of keys that are tried for a token without a key ID is bounded.
func TestTokenWithoutName(t *testing.T) {
	s := signers()
	for n, want := range map[int]string{15: "ada", 16: badSignature} {
		var all []string
		for i := range n {
			all = append(all, rsaJWK(fmt.Sprint(i), &s.other.PublicKey, ""))
		}
		j := newJWT(t, JWTConfig{Algorithms: []string{"RS256"}}, keySet(append(all, rsaJWK("x", &s.rsa.PublicKey, ""))...))
		if got := verdict(j.Authenticate(request("Authorization", "Bearer "+sign(t, head("RS256"), claims(), s.rsa)))); got != want {
			t.Errorf("%d others: got %s", n, got)
		}
	}
}

// A JWKS file is rotated while tokens are verified.
func TestKeySetFileRotates(t *testing.T) {
	s := signers()
	j := newJWT(t, JWTConfig{Algorithms: []string{"RS256"}}, keySet(rsaJWK("old", &s.rsa.PublicKey, "")))
	old := sign(t, head("RS256", "kid", "old"), claims(), s.rsa)
	next := sign(t, head("RS256", "kid", "new"), claims(), s.other)
	log := new(logged)
	for _, step := range []struct{ set, old, next string }{
		{"", "ada", badSignature},
		{keySet(rsaJWK("old", &s.rsa.PublicKey, ""), rsaJWK("new", &s.other.PublicKey, "")), "ada", "ada"},
		{keySet(rsaJWK("new", &s.other.PublicKey, "")), badSignature, "ada"},
		{`{"keys":[]}`, badSignature, "ada"},
		{"canary", badSignature, "ada"},
	} {
		if step.set != "" {
			put(t, j.cfg.KeySetFile, step.set)
			j.Reload(slog.New(slog.NewTextHandler(log, nil)))
		}
		a := verdict(j.Authenticate(request("Authorization", "Bearer "+old)))
		b := verdict(j.Authenticate(request("Authorization", "Bearer "+next)))
		if a != step.old || b != step.next {
			t.Errorf("%.40s: old: %s, new: %s", step.set, a, b)
		}
	}
	if log.count("last valid content stays in use") != 2 || log.count("canary") > 0 {
		t.Error("invalid files are not logged, or with their content")
	}
}
