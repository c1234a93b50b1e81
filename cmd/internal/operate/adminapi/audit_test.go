package adminapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Every change is one line that says who did what to whom and what came of it, whatever the log's level.
func TestAudit(t *testing.T) {
	fails := false
	o := newOffice(t, memstore.New(), withToken(t), func(c *adminapi.Config) {
		c.Reload = func() (string, bool, error) {
			if fails {
				return "d1", false, errors.Join(
					&rules.Error{Pos: rules.Position{File: "a.yaml", Line: 3, Column: 5}, Rule: "r", Msg: "one"}, errors.New("two"))
			}
			return "d2", true, nil
		}
	})
	o.level.Set(slog.LevelError)
	for _, tt := range []struct{ method, path, body, want string }{
		{"POST", "/v1/reset", `{"rule":"user","key":{"header:X-User":"ada"}}`, `what=reset selector="user header:X-User=ada; user#2 header:X-User=ada" outcome=done`},
		{"POST", "/v1/block", `{"rule":"user#2","key":{"header:X-User":"ada"},"for":"90s"}`, `what=block selector="user#2 header:X-User=ada" for=1m30s outcome=done`},
		{"POST", "/v1/block", `{"rule":"token","key":{"token":"canary"},"for":"0s"}`, `what=block selector="token token=~4f0b1c" for=0s outcome=done`},
		{"POST", "/v1/block", `{"rule":"user","key":{"header:X-User":"ada"},"for":"canary"}`, `what=block selector="user header:X-User=ada; user#2 header:X-User=ada" for=0s outcome="failed: Bad Request"`},
		{"POST", "/v1/reset", `{"rule":"nosuch","key":{"a":"canary"}}`, `what=reset unknown=nosuch outcome="failed: Not Found"`},
		{"POST", "/v1/block", `{"rule":"nosuch","key":{"a":"canary"},"for":"1d"}`, `what=block unknown=nosuch for=24h0m0s outcome="failed: Not Found"`},
		{"POST", "/v1/reset", `{"request":{"path":"/jobs","headers":{"Cookie":"canary=\n"}}}`, `what=reset outcome="failed: Bad Request"`},
		{"POST", "/v1/reset/rule", `{"rule":"user"}`, `what="reset rule" selector=user last=true outcome=done`},
		{"POST", "/v1/reset/rule", `{"rule":"nosuch"}`, `what="reset rule" unknown=nosuch outcome="failed: Not Found"`},
		{"POST", "/v1/suspend", `{"rules":["user","pair"]}`, `what=suspend selector="user; pair" outcome=done`},
		{"POST", "/v1/suspend", `{"rules":["user","nosuch","no\nr"]}`, `what=suspend selector=user unknown="nosuch; no\nr" outcome="failed: Not Found"`},
		{"POST", "/v1/resume", `{"rules":["user","pair"]}`, `what=resume selector="user; pair" outcome=done`},
		{"PUT", "/v1/log-level", `{"level":"canary"}`, `what="log level" outcome="failed: Bad Request"`},
		{"PUT", "/v1/log-level", `{"level":"warn"}`, `what="log level" level=warn outcome=done`},
		{"POST", "/v1/reload", `{}`, `what=reload digest=d2 changed=true outcome=done`},
	} {
		o.ask(tt.method, tt.path, tt.body, "Authorization", "Bearer "+rightToken)
		lines := o.log.lines()
		if len(lines) != 1 {
			t.Errorf("%s: %d lines are logged: %q", tt.body, len(lines), lines)
			continue
		}
		_, rest, _ := strings.Cut(lines[0], " level=INFO msg=admin who=token from=127.0.0.1:")
		_, got, _ := strings.Cut(rest, " ")
		if want := strings.Replace(tt.want, "~4f0b1c", "~", 1); !strings.HasPrefix(digestless(got), want) || strings.Contains(lines[0], "canary") {
			t.Errorf("%s: the log says\n     %s\nwant %s", tt.body, lines[0], want)
		}
	}
	fails = true
	p := o.tree(422, o.ask("POST", "/v1/reload", "", "X-Sluice-Admin", "1", "Authorization", "Bearer "+rightToken))
	faults, _ := json.Marshal(p["faults"])
	expect(t, "faults", string(faults), `[{"column":5,"file":"a.yaml","line":3,"message":"one","rule":"r"},{"message":"two"}]`)
	if lines := o.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], `what=reload faults=2 outcome="failed: Unprocessable Entity"`) {
		t.Errorf("the log says %q", lines)
	}
	for _, call := range everything { // to look is no change
		if call.method == "GET" || call.path == "/v1/peek" || call.path == "/v1/explain" {
			o.ask(call.method, call.path, call.body, "Authorization", "Bearer "+rightToken)
		}
	}
	if lines := o.log.lines(); len(lines) != 0 {
		t.Errorf("looking is logged: %q", lines)
	}
}

// digestless cuts the digits of digests.
func digestless(s string) string {
	before, after, ok := strings.Cut(s, "~")
	if !ok {
		return s
	}
	return before + "~" + strings.TrimLeft(after, "0123456789abcdef")
}

// odd are texts that would break lines, colour terminals or end a value, if they were written as they are.
var odd = []string{
	"a\nb", "a\r\nlevel=INFO msg=admin who=root", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x00", "\x7f", "\u2028\u2029", "\u202edesrever", "\ufeff",
	`"`, `\`, `a" outcome="done`, "a\tb", "=", "; other=1", "é", "漢", "\U0001f600", "\x9b31m", "%n%s", "{}", "\u0085",
}

// Whatever a key holds, it takes one line of the log, in text and in JSON, and cannot pass for another part of it.
func TestAuditIsEscaped(t *testing.T) {
	var asJSON bytes.Buffer
	for _, format := range []string{"text", "json"} {
		o := newOffice(t, memstore.New(), func(c *adminapi.Config) {
			if format == "json" {
				c.Log = slog.New(slog.NewJSONHandler(&asJSON, nil))
			}
		})
		for _, text := range odd {
			key, err := json.Marshal(map[string]string{"header:X-User": text})
			if err != nil {
				t.Fatal(err)
			}
			asJSON.Reset()
			if strings.HasPrefix(text, `"`) { // which is how text values begin
				key, _ = json.Marshal(map[string]string{"header:X-User": fmt.Sprintf("%q", text)})
			}
			got := o.ask("POST", "/v1/reset", `{"rule":"user#2","key":`+string(key)+`}`)
			lines := o.log.lines()
			if format == "json" {
				lines = strings.Split(strings.TrimSuffix(asJSON.String(), "\n"), "\n")
			}
			if got.status != 200 || len(lines) != 1 {
				t.Errorf("%q: %d %s, %q", text, got.status, got.body, lines)
				continue
			}
			for _, b := range []byte(lines[0] + strings.TrimSuffix(got.body, "\n")) {
				if b < ' ' || b == 0x7f {
					t.Errorf("%q is written with a control character: %q", text, lines[0])
					break
				}
			}
			if strings.ContainsAny(lines[0]+got.body, "\u2028\u2029\u202e\ufeff\u0085\u009b") {
				t.Errorf("%q is written as it is: %q", text, lines[0])
			}
			if format == "json" {
				var line map[string]any
				if err := json.Unmarshal([]byte(lines[0]), &line); err != nil || line["outcome"] != "done" || line["what"] != "reset" || line["who"] == "root" {
					t.Errorf("%q: the line is %s", text, lines[0])
				}
			}
		}
	}
}

// A secret is shown to nobody, in whatever way it comes: neither in answers nor in the log.
func TestSecretsStaySecret(t *testing.T) {
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) {
		c.Denied = func(int) []adminapi.Top {
			buckets, err := testSet(t).Buckets("token", []rules.KeyPart{{Name: "token", Value: "canary"}})
			if err != nil {
				t.Fatal(err)
			}
			return []adminapi.Top{{Rule: "token", Key: buckets[0].Key, Count: 1}}
		}
	})
	for _, value := range []string{"canary", "~canary", `\"canary`, `\"canary\"`, "canary\\n"} {
		for _, body := range []string{
			`{"rule":"token","key":{"token":"` + value + `"}`,
			`{"request":{"path":"/jobs?token=` + strings.Trim(value, `\"n`) + `","headers":{"X-Token":"` + value + `"}}`,
		} {
			for _, path := range []string{"/v1/peek", "/v1/reset", "/v1/block", "/v1/explain"} {
				body := body
				if path == "/v1/block" {
					body += `,"for":"1m"`
				}
				got := o.ask("POST", path, body+"}")
				if strings.Contains(got.body, "canary") {
					t.Errorf("%s %s}: %s", path, body, got.body)
				}
			}
		}
	}
	if got := o.ask("GET", "/v1/top", ""); strings.Contains(got.body, "canary") || !strings.Contains(got.body, `"token":"~`) {
		t.Errorf("top: %s", got.body)
	}
	for _, line := range o.log.lines() {
		if strings.Contains(line, "canary") {
			t.Errorf("the log says %s", line)
		}
	}
}
