package interop

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// spaces and seconds match the parts of the client's output that may differ: it prints random spaces, and time passes.
var (
	spaces  = regexp.MustCompile(`\s+`)
	seconds = regexp.MustCompile(`seconds:\d+`)
)

// TestOfficialClient runs the reference's own client with both services.
func TestOfficialClient(t *testing.T) {
	s := scenario{rules: []string{"basic.yaml"}}
	calls := [][]string{
		{"-domain", "basic", "-descriptors", "path=/login"},
		{"-domain", "basic", "-descriptors", "path=/login"},
		{"-domain", "basic", "-descriptors", "path=/login"},
		{"-domain", "basic", "-descriptors", "path=/login"},
		{"-domain", "basic", "-descriptors", "user=bob,path=/x", "-descriptors", "path=/open"},
		{"-domain", "nowhere", "-descriptors", "path=/login"},
	}
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		theirs, ours := s.pair(t, s.allRules(t, 1))
		var faults [][3]string
		refused := false
		for _, args := range calls {
			want, got := theirs.callClient(t, args), ours.callClient(t, args)
			refused = refused || strings.Contains(want, "overall_code:OVER_LIMIT")
			if want != got {
				faults = append(faults, [3]string{strings.Join(args, " "), want, got})
			}
		}
		if !sameHour(t, begun) && attempt == 0 {
			continue
		}
		for _, f := range faults {
			t.Errorf("client_cmd %s\nwant %s\ngot  %s", f[0], f[1], f[2])
		}
		if !refused {
			t.Error("no call was over the limit")
		}
		return
	}
}

func (s *server) callClient(t *testing.T, args []string) string {
	t.Helper()
	out, err := exec.Command(reference(t, "client_cmd"), append([]string{"-dial_string", s.grpc}, args...)...).CombinedOutput()
	_, response, ok := strings.Cut(string(out), "response:")
	if err != nil || !ok {
		t.Fatalf("%s: %v\n%s\n%s", s.name, err, out, s.log)
	}
	return seconds.ReplaceAllString(spaces.ReplaceAllString(response, " "), "seconds:N")
}
