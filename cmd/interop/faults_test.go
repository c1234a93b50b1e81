package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// otherWords are Sluice's error messages for files where they differ from the reference's, with the reason.
var otherWords = map[string]struct{ words, why string }{
	"count-is-text.yaml":          {"error loading config file: ", "the rest is from the YAML library"},
	"negative-count.yaml":         {"error loading config file: ", "the rest is from the YAML library"},
	"not-yaml.yaml":               {"unclosed quote", "the reference prints the YAML library's message; this one is clearer"},
	"key-is-a-number.yaml":        {"the key 0.25 is not text", "this one contains a remedy"},
	"share-without-wildcard.yaml": {"share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'", "later versions of the reference accept a * anywhere"},
}

// badFiles returns sets of files that both reject, by name.
func badFiles(t *testing.T) map[string]map[string]string {
	t.Helper()
	found, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(found) < 15 {
		t.Fatalf("found %d files: %v", len(found), err)
	}
	sets := map[string]map[string]string{"duplicate-domain": readRules(t, "merge-a.yaml", "merge-b.yaml")}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sets[filepath.Base(path)] = map[string]string{filepath.Base(path): string(text)}
	}
	return sets
}

// fault returns the error of the reference's checker about a folder, without the file's name.
func fault(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(reference(t, "config_check_cmd"), "-config_dir", dir).CombinedOutput()
	if err == nil {
		t.Fatalf("the reference accepts it:\n%s", out)
	}
	_, rest, ok := strings.Cut(string(out), ".yaml: ")
	if !ok {
		t.Fatalf("the reference's error contains no file name:\n%s", out)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// TestSameFaults checks invalid files: `sluice check` rejects them with the reference's message, to which it adds.
func TestSameFaults(t *testing.T) {
	for name, files := range badFiles(t) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(writeRules(t, files), "config")
			want := fault(t, dir)
			if other, ok := otherWords[name]; ok {
				want = other.words
			}
			if name == "empty-domain.yaml" {
				want = "has a domain at its top" // it is unknown which of the two formats it is
			}
			out, err := exec.Command(sluice(t), "check", dir).CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("err %v, want %q in\n%s", err, want, out)
			}
		})
	}
}

// TestBadFilesServed starts services with invalid files: both run, log the error, and respond that they have no rules.
func TestBadFilesServed(t *testing.T) {
	redis := redistest.Start(t)
	for name, files := range badFiles(t) {
		t.Run(name, func(t *testing.T) {
			want := fault(t, filepath.Join(writeRules(t, files), "config"))
			if other, ok := otherWords[name]; ok {
				want = other.words
			}
			s := startSluice(t, redis, files, nil)
			await(t, func() error {
				for _, line := range s.log.messages() {
					if strings.Contains(line, want) && strings.Contains(line, sorted(files)[len(files)-1]) {
						return nil
					}
				}
				return fmt.Errorf("want %q and the file's name in the log:\n%s", want, s.log)
			})
			got := s.ask(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*entries.RateLimitDescriptor{{}}})
			if want := "Unknown: no rate limit configuration loaded"; got.String() != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// messages returns the messages that a server logged in JSON, by line.
func (o *output) messages() (texts []string) {
	for line := range strings.SplitSeq(o.String(), "\n") {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil {
			continue
		}
		all := ""
		for _, key := range sorted(fields) {
			all += fmt.Sprint(fields[key], " ")
		}
		texts = append(texts, all)
	}
	return texts
}
