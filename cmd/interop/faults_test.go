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

// otherWords are Sluice's for faults of files where they are not the reference's, with the reason.
var otherWords = map[string]struct{ words, why string }{
	"count-is-text.yaml":          {"error loading config file: ", "the rest is the YAML library's"},
	"negative-count.yaml":         {"error loading config file: ", "the rest is the YAML library's"},
	"not-yaml.yaml":               {"a quote is opened and not closed", "the YAML library's; these are clearer"},
	"key-is-a-number.yaml":        {"the key 0.25 is not text", "these say what to write instead"},
	"share-without-wildcard.yaml": {"share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'", "later versions of the reference take a * anywhere"},
}

// badFiles are sets of files that both refuse, by name.
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

// fault is what the reference's checker has to say about a folder, without the file's name.
func fault(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(reference(t, "config_check_cmd"), "-config_dir", dir).CombinedOutput()
	if err == nil {
		t.Fatalf("the reference takes it:\n%s", out)
	}
	_, rest, ok := strings.Cut(string(out), ".yaml: ")
	if !ok {
		t.Fatalf("the reference says no file's name:\n%s", out)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// TestSameFaults checks bad files: `sluice check` refuses them in the reference's words, to which it adds.
func TestSameFaults(t *testing.T) {
	for name, files := range badFiles(t) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(writeRules(t, files), "config")
			want := fault(t, dir)
			if other, ok := otherWords[name]; ok {
				want = other.words
			}
			if name == "empty-domain.yaml" {
				want = "has a domain at its top" // which of the two formats it is cannot be known
			}
			out, err := exec.Command(sluice(t), "check", dir).CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("err %v, want %q in\n%s", err, want, out)
			}
		})
	}
}

// TestBadFilesServed starts services on bad files: both run, say what is wrong, and answer that they have no rules.
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

// messages are the texts that a server logged in JSON, by line.
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
