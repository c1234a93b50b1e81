package adminapi_test

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/memstore"
)

// Parameters that would be ignored are errors, which name the right one. Errors about values quote the value.
func TestParametersTeach(t *testing.T) {
	o := newOffice(t, memstore.New(), kept(t))
	for path, want := range map[string]string{
		"/v1/keys?rule=user&after=x":            `unknown parameter \"after\": write page_token; the parameters are rule, page_token, limit`,
		"/v1/keys?next=x":                       "write page_token",
		"/v1/queue?most=2":                      "write limit",
		"/v1/queue?after=":                      "write page_token",
		"/v1/top?n=3":                           `unknown parameter \"n\": write limit; the parameters are by, limit`,
		"/v1/top?Limit=3":                       "write limit",
		"/v1/top?x=3":                           `unknown parameter \"x\": the parameters are by, limit`,
		"/v1/status?x=3":                        "/v1/status takes none",
		"/v1/top?limit=3&limit=4":               "limit: given twice",
		"/v1/top?limit=%zz":                     "the query of the URL is invalid",
		"/v1/top?by=denied;limit=3":             "the query of the URL is invalid",
		"/v1/queue/item?identifier=a":           "the parameters are id",
		"/v1/watch?every=1s":                    "the parameters are interval",
		"/v1/top?limit=0":                       `limit: \"0\": write`,
		"/v1/top?by=x":                          `by: \"x\": write`,
		"/v1/keys?limit=x":                      `limit: \"x\": write`,
		"/v1/queue?limit=-1":                    `limit: \"-1\": write`,
		"/v1/queue?state=replayed":              `state: \"replayed\": write`,
		"/v1/queue?page_token=x":                `page_token: \"x\" is not`,
		"/v1/watch?interval=1x":                 `interval: \"1x\": write`,
		"/v1/top?by=" + strings.Repeat("x", 99): `by: \"` + strings.Repeat("x", 40) + `\": write`,
	} {
		if got := o.ask("GET", path, ""); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want)
		}
	}
	for call, want := range map[string]string{
		`PUT /v1/log-level {"level":"loud"}`:                                        `level: \"loud\": write`,
		`POST /v1/block {"rule":"user","key":{"header:X-User":"a"},"duration":"1"}`: `duration: \"1\": write`,
		`POST /v1/reset/rule {"rule":"user","dry":true}`:                            `did you mean \"dry_run\"?`,
		`POST /v1/reset/rule {"rule":"user","rule":"x"}`:                            "rule: given twice",
		`POST /v1/suspend {"rules":"user"}`:                                         "rules: found a string at byte 9: write a list",
		`POST /v1/reload {"x":1}`:                                                   `unknown field \"x\": write {} or nothing`,
		`POST /v1/reload x`:                                                         "not JSON at byte 0",
		`POST /v1/peek?rule=user {"rule":"user"}`:                                   "/v1/peek takes none",
	} {
		method, rest, _ := strings.Cut(call, " ")
		path, body, _ := strings.Cut(rest, " ")
		if got := o.ask(method, path, body, "X-Sluice-Admin", "1"); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", call, got.status, got.body, want)
		}
	}
	for path, want := range map[string]string{
		"/v1/queue/replay": "renamed: write /v1/queue/requeue",
		"/v1/stauts":       "did you mean /v1/status?",
		"/nosuch":          "no such path: GET /openapi.yaml",
	} {
		if got := o.ask("POST", path, "{}", "X-Sluice-Admin", "1"); got.status != 404 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want)
		}
	}
	for path, want := range map[string]string{
		`/v1/queue/requeue {"id":"a"}`: "the item is queued: only dead letters can be requeued",
		`/v1/queue/cancel {"id":"c"}`:  "the item is done: only queued items and dead letters can be cancelled",
	} {
		path, body, _ := strings.Cut(path, " ")
		if got := o.ask("POST", path, body, "X-Sluice-Admin", "1"); got.status != 409 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want)
		}
	}
	o.get(501, "/v1/keys?rule=user&limit=1&page_token=") // a store without a list
	o.get(200, "/v1/queue?state=dead&limit=1")
}
