package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
)

// page sends requests until they are denied, from its own origin and from another, and uses a WebSocket. It writes the results into
// its own document. Its load event waits for them, so that the browser prints the document only then.
const page = `<!doctype html><title>page</title><pre id="saw"></pre><script>
const saw = document.getElementById("saw"), say = text => { saw.textContent += text + "\n" };
const ask = async (name, url) => {
	for (let i = 1; i <= 10; i++) {
		const r = await fetch(url).catch(e => ({status: e.name}));
		if (!r.headers) {
			say([name, i, r.status].join(" "));
			return;
		}
		const h = n => r.headers.get(n);
		say([name, i, r.status, "left", h("X-Ratelimit-Remaining"), "limit", h("X-Ratelimit-Limit"), "retry", h("Retry-After") > 1000, h("Ratelimit-Policy")].join(" "));
		if (r.status === 429) {
			say(name + " " + (await r.json())["violated-policies"]);
			return;
		}
	}
};
const talk = () => new Promise(done => {
	const s = new WebSocket("ws://" + location.host + "/socket/browser");
	s.onopen = () => s.send("hello");
	s.onmessage = m => { say("socket " + m.data); s.close(); };
	s.onerror = () => { say("socket failed"); };
	s.onclose = () => done();
});
(async () => {
	await ask("own", "/quota?who=own");
	await ask("other", "http://localhost:" + location.port + "/quota?who=other");
	await talk();
	say("end");
	document.title = "done";
})().catch(e => say("fault " + e)).finally(() => fetch("/finished"));
</script><img src="/held">`

var sawText = regexp.MustCompile(`(?s)<pre id="saw">(.*?)</pre>`)

// A script in a browser can read the remaining quota and Retry-After, from another origin only the remaining quota. It cannot read
// a denial there, because the route has no cors: see TestGatewayCORS.
func browserClient(t *testing.T, f *front) {
	const want = `own 1 200 left 2 limit 3 retry false "quota";q=3;w=3600
own 2 200 left 1 limit 3 retry false "quota";q=3;w=3600
own 3 200 left 0 limit 3 retry false "quota";q=3;w=3600
own 4 429 left 0 limit 3 retry true "quota";q=3;w=3600
own quota
other 1 200 left 2 limit 3 retry false "quota";q=3;w=3600
other 2 200 left 1 limit 3 retry false "quota";q=3;w=3600
other 3 200 left 0 limit 3 retry false "quota";q=3;w=3600
other 4 TypeError
socket hello
end
`
	if got := browserSaw(t, "http://"+f.plain+"/page"); got != want {
		t.Errorf("the browser saw\n%s\nwant\n%s", got, want)
	}
}

// browserSaw loads a page in Chromium and returns the text that its script writes into the element "saw".
func browserSaw(t *testing.T, url string) string {
	t.Helper()
	forwardauthtest.Need(t, "chromium")
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-crash-reporter",
		"--user-data-dir="+t.TempDir(), "--dump-dom", url)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	m := sawText.FindSubmatch(out)
	if m == nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	return string(m[1])
}
