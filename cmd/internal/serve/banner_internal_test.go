package serve

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

// The banner names the store and all listeners, and its commands reach them.
func TestBanner(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "h.sock")
	for text, want := range map[string][]string{
		"listeners: {grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}, admin: {address: off}}": {
			"It counts in memory.", "grpcurl -plaintext -d ", "http://127.0.0.1:",
		},
		"listeners: {grpc: {address: ':0'}, http: {address: ':0'}, admin: {address: off}, resp: {address: '127.0.0.1:0'}}": {
			"http://127.0.0.1:", ", RESP on 127.0.0.1:", "\n    127.0.0.1:",
		},
		"listeners: {grpc: {address: '127.0.0.1:0'}, http: {address: 'unix://" + socket + "'}, admin: {address: off}}": {
			"--unix-socket " + socket + " http://localhost/v1/check",
		},
		"listeners: {grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}, admin: {address: off}}\nstore: {kind: memcached, addresses: ['127.0.0.1:1']}": {
			"It counts in Memcached at 127.0.0.1:1.",
		},
		"listeners: {grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}, admin: {address: off}}\nstore: {kind: redis, url: 'redis://u:secret@127.0.0.1:1/0'}": {
			"It counts in Redis at 127.0.0.1:1.",
		},
	} {
		cfg, err := config.Parse("f", []byte(text), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		s, err := New(ctx, cfg, Options{Log: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		s.WriteBanner(&out)
		for _, part := range want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: the banner lacks %q:\n%s", text, part, &out)
			}
		}
		stop()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}
	secure := &config.TLS{CertFile: "c", KeyFile: "k"}
	at := &netAddr{"127.0.0.1:8443"}
	if got := curlTarget(secure, at); got != "--cacert CA_FILE https://127.0.0.1:8443" {
		t.Errorf("curl: %s", got)
	}
	if got := grpcurlFlags(secure, at); got != "-cacert CA_FILE" {
		t.Errorf("grpcurl: %s", got)
	}
}

type netAddr struct{ text string }

func (a *netAddr) Network() string { return "tcp" }

func (a *netAddr) String() string { return a.text }
