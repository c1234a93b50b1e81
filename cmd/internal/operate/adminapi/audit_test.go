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

// Every change is one log line with principal, action, selector and outcome, regardless of the log level.
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
		{"POST", "/v1/reset", `{"rule":"user","key":{"header:X-User":"ada"}}`, `action=reset selector="user header:X-User=ada; user#2 header:X-User=ada" outcome=done`},
		{"POST", "/v1/block", `{"rule":"user#2","key":{"header:X-User":"ada"},"duration":"90s"}`, `action=block selector="user#2 header:X-User=ada" duration=1m30s outcome=done`},
		{"POST", "/v1/block", `{"rule":"token","key":{"token":"canary"},"duration":"0s"}`, `action=block selector="token token=~4f0b1c" duration=0s outcome=done`},
		{"POST", "/v1/block", `{"rule":"user","key":{"header:X-User":"ada"},"duration":"canary"}`, `action=block selector="user header:X-User=ada; user#2 header:X-User=ada" duration=0s outcome="failed: Bad Request"`},
		{"POST", "/v1/reset", `{"rule":"nosuch","key":{"a":"canary"}}`, `action=reset unknown_rules=nosuch outcome="failed: Not Found"`},
		{"POST", "/v1/block", `{"rule":"nosuch","key":{"a":"canary"},"duration":"1d"}`, `action=block unknown_rules=nosuch duration=24h0m0s outcome="failed: Not Found"`},
		{"POST", "/v1/reset", `{"request":{"path":"/jobs","headers":{"Cookie":"canary=\n"}}}`, `action=reset outcome="failed: Bad Request"`},
		{"POST", "/v1/reset/rule", `{"rule":"user"}`, `action="reset rule" selector=user last=true outcome=done`},
		{"POST", "/v1/reset/rule", `{"rule":"nosuch"}`, `action="reset rule" unknown_rules=nosuch outcome="failed: Not Found"`},
		{"POST", "/v1/suspend", `{"rules":["user","pair"]}`, `action=suspend selector="user; pair" outcome=done`},
		{"POST", "/v1/suspend", `{"rules":["user","nosuch","no\nr"]}`, `action=suspend selector=user unknown_rules="nosuch; no\nr" outcome="failed: Not Found"`},
		{"POST", "/v1/resume", `{"rules":["user","pair"]}`, `action=resume selector="user; pair" outcome=done`},
		{"PUT", "/v1/log-level", `{"level":"canary"}`, `action="log level" outcome="failed: Bad Request"`},
		{"PUT", "/v1/log-level", `{"level":"warn"}`, `action="log level" level=warn outcome=done`},
		{"POST", "/v1/reload", `{}`, `action=reload rules_digest=d2 changed=true outcome=done`},
	} {
		o.ask(tt.method, tt.path, tt.body, "Authorization", "Bearer "+rightToken)
		lines := o.log.lines()
		if len(lines) != 1 {
			t.Errorf("%s: %d lines are logged: %q", tt.body, len(lines), lines)
			continue
		}
		_, rest, _ := strings.Cut(lines[0], " level=INFO msg=audit principal=token client=127.0.0.1:")
		_, got, _ := strings.Cut(rest, " ")
		if want := strings.Replace(tt.want, "~4f0b1c", "~", 1); !strings.HasPrefix(digestless(got), want) || strings.Contains(lines[0], "canary") {
			t.Errorf("%s: the log has\n     %s\nwant %s", tt.body, lines[0], want)
		}
	}
	fails = true
	p := o.tree(422, o.ask("POST", "/v1/reload", "", "X-Sluice-Admin", "1", "Authorization", "Bearer "+rightToken))
	errors, _ := json.Marshal(p["errors"])
	expect(t, "errors", string(errors), `[{"column":5,"file":"a.yaml","line":3,"message":"one","rule":"r"},{"message":"two"}]`)
	if lines := o.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], `action=reload errors=2 outcome="failed: Unprocessable Entity"`) {
		t.Errorf("the log has %q", lines)
	}
	for _, call := range everything { // reads are not changes
		if call.method == "GET" || call.path == "/v1/peek" || call.path == "/v1/explain" {
			o.ask(call.method, call.path, call.body, "Authorization", "Bearer "+rightToken)
		}
	}
	if lines := o.log.lines(); len(lines) != 0 {
		t.Errorf("reads are logged: %q", lines)
	}
}

// digestless removes the digits of digests.
func digestless(s string) string {
	before, after, ok := strings.Cut(s, "~")
	if !ok {
		return s
	}
	return before + "~" + strings.TrimLeft(after, "0123456789abcdef")
}

// odd are strings that would break lines, color terminals or end a value if they were written unescaped.
var odd = []string{
	"a\nb", "a\r\nlevel=INFO msg=audit principal=root", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x00", "\x7f", "\u2028\u2029", "\u202edesrever", "\ufeff",
	`"`, `\`, `a" outcome="done`, "a\tb", "=", "; other=1", "é", "漢", "\U0001f600", "\x9b31m", "%n%s", "{}", "\u0085",
}

// Any key is logged in one line, in text and in JSON, and cannot imitate other fields of it.
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
			if strings.HasPrefix(text, `"`) { // quoted values start with a quote
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
				t.Errorf("%q is written unescaped: %q", text, lines[0])
			}
			if format == "json" {
				var line map[string]any
				if err := json.Unmarshal([]byte(lines[0]), &line); err != nil || line["outcome"] != "done" || line["action"] != "reset" || line["principal"] == "root" {
					t.Errorf("%q: the line is %s", text, lines[0])
				}
			}
		}
	}
}

// A secret is in no response and no log line, however the request carries it.
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
					body += `,"duration":"1m"`
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
			t.Errorf("log line: %s", line)
		}
	}
}
