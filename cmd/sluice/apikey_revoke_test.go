package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// The running gateway rejects a revoked key and accepts the other keys. Lists contain no secrets.
func TestAPIKeyRevoke(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	made := map[string]newAccount{}
	for _, user := range []string{"ada", "bob"} {
		_, out, _ := sluiceRun(t, "apikey", "new", "--user", user, "--plan", "pro", "-f", file, "-o", "json")
		var m newAccount
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatal(err)
		}
		made[user] = m
	}
	api := tellsHeaders(t)
	p, address := startGateway(t, fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /**, upstream: api, authentication: [api_keys]}]}", api.URL),
		"rules: []", fmt.Sprintf("authentication: {api_keys: {files: %q}}", file))
	status := func(user string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", made[user].Key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if a, b := status("ada"), status("bob"); a != 200 || b != 200 {
		t.Fatalf("before: %d and %d", a, b)
	}
	code, out, _ := sluiceRun(t, "apikey", "list", "-f", file)
	if code != term.ExitFine || !strings.Contains(out, made["ada"].Entry.ID+"  ada   pro   active  never") || strings.Contains(out, "sha256") || strings.Contains(out, "slk_") {
		t.Errorf("exit %d\n%s", code, out)
	}
	for args, want := range map[string]string{
		"apikey revoke eve -f " + file: "sluice apikey list shows their ids",
		"apikey revoke k- -f " + file:  `"k-" matches 2 keys: write one of k-`,
		"apikey revoke ada":            "write sluice apikey revoke ID --file keys.yaml",
		"apikey revoke ada -f nosuch":  "nosuch: the file does not exist or is empty",
		"apikey list":                  "write --file keys.yaml",
		"apikey list -f nosuch":        "nosuch",
	} {
		if code, out, err := sluiceRun(t, strings.Fields(args)...); code != term.ExitWrong || out != "" || !strings.Contains(err, want) {
			t.Errorf("sluice %s: exit %d, %s%s", args, code, out, err)
		}
	}
	if code, out, err := sluiceRun(t, "apikey", "revoke", made["ada"].Entry.ID[:5], "-f", file); code != term.ExitFine || !strings.Contains(out, "revoked "+made["ada"].Entry.ID+" of user ada") {
		t.Fatalf("exit %d, %s%s", code, out, err)
	}
	p.await(t, "API keys changed")
	if a, b := status("ada"), status("bob"); a != 401 || b != 200 {
		t.Errorf("after: %d and %d", a, b)
	}
	if code, out, _ := sluiceRun(t, "apikey", "revoke", "bob", "-f", file, "-o", "json"); code != term.ExitFine || !strings.Contains(out, `"user": "bob"`) {
		t.Errorf("exit %d, %s", code, out)
	}
	p.await(t, "API keys changed")
	if got := status("bob"); got != 401 {
		t.Errorf("the last key: %d", got)
	}
}
