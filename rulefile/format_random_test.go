package rulefile_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rulefile"
)

// sloppy writes random files in random layouts. Every value has a number, and every comment has that of its value,
// which is below or before it.
type sloppy struct {
	r        *rand.Rand
	b        strings.Builder
	n        int
	comments int
}

func (s *sloppy) number() int { s.n++; return s.n }

// before writes blank lines and comments above the line with the next number.
func (s *sloppy) before(indent int) {
	for range s.r.IntN(3) {
		if s.r.IntN(3) > 0 {
			s.b.WriteString(strings.Repeat(" ", s.r.IntN(3)) + "\n")
			continue
		}
		s.comments++
		fmt.Fprintf(&s.b, "%s#%s above %d.  \n", strings.Repeat(" ", indent), strings.Repeat("-", s.r.IntN(3)), s.n+1)
	}
}

// end ends a line with or without a comment.
func (s *sloppy) end() {
	if s.r.IntN(3) == 0 {
		s.comments++
		fmt.Fprintf(&s.b, "%s# behind %d.", strings.Repeat(" ", 1+s.r.IntN(3)), s.n)
	}
	s.b.WriteString(strings.Repeat(" ", s.r.IntN(3)) + "\n")
}

func (s *sloppy) mapping(indent, depth int) {
	for i := range 1 + s.r.IntN(4) {
		if i > 0 {
			s.before(indent)
			s.b.WriteString(strings.Repeat(" ", indent))
		}
		fmt.Fprintf(&s.b, "k%d.:", s.number())
		s.value(indent, depth)
	}
}

func (s *sloppy) value(indent, depth int) {
	switch kind := s.r.IntN(8); {
	case kind == 0 && depth < 4:
		s.end()
		s.before(indent + 2)
		deeper := indent + 1 + s.r.IntN(4)
		s.b.WriteString(strings.Repeat(" ", deeper))
		s.mapping(deeper, depth+1)
	case kind <= 2 && depth < 4:
		s.end()
		s.sequence(indent+s.r.IntN(4), depth+1)
	case kind == 3:
		fmt.Fprintf(&s.b, " %s", []string{"|", ">", "|-", ">-"}[s.r.IntN(4)])
		s.end()
		for range 1 + s.r.IntN(3) {
			fmt.Fprintf(&s.b, "%stext # %d.\n", strings.Repeat(" ", indent+3), s.n)
		}
	case kind == 4:
		s.b.WriteString(" ")
		s.flow(0)
		s.end()
	default:
		s.b.WriteString(strings.Repeat(" ", 1+s.r.IntN(3)))
		s.scalar()
		s.end()
	}
}

func (s *sloppy) sequence(indent, depth int) {
	for range 1 + s.r.IntN(4) {
		s.before(indent)
		s.b.WriteString(strings.Repeat(" ", indent) + "-")
		gap := 1 + s.r.IntN(3)
		s.b.WriteString(strings.Repeat(" ", gap))
		switch s.r.IntN(3) {
		case 0:
			s.mapping(indent+1+gap, depth)
		case 1:
			s.flow(0)
			s.end()
		default:
			s.scalar()
			s.end()
		}
	}
}

func (s *sloppy) scalar() {
	n := s.number()
	fmt.Fprintf(&s.b, []string{
		"v%d.", "v%d. a#b", `"v%d. # no comment"`, `'v%d. it''s # none'`, `"v%d. \u0041\n\"#"`, "v%d.::/32",
		`"v%d. ü"`, "é%d.",
	}[s.r.IntN(8)], n)
}

func (s *sloppy) flow(depth int) {
	mapping := s.r.IntN(2) == 0
	open, end := "[", "]"
	if mapping {
		open, end = "{", "}"
	}
	s.b.WriteString(open)
	for i := range 1 + s.r.IntN(6) {
		if i > 0 {
			s.b.WriteString(",")
			if s.r.IntN(6) == 0 {
				s.end()
				s.b.WriteString(strings.Repeat(" ", 20))
			}
		}
		s.b.WriteString(strings.Repeat(" ", s.r.IntN(2)))
		if mapping {
			fmt.Fprintf(&s.b, "k%d.: ", s.number())
		}
		if depth < 2 && s.r.IntN(4) == 0 {
			s.flow(depth + 1)
		} else {
			fmt.Fprintf(&s.b, "v%d.::/64", s.number())
		}
	}
	s.b.WriteString(end)
}

// Any file that a person could write is formatted, and every comment stays with its value.
func TestFormatSloppy(t *testing.T) {
	seeds := uint64(60)
	if os.Getenv("SLUICE_SOAK") != "" {
		seeds = 20_000
	}
	for seed := range seeds {
		s := &sloppy{r: rand.New(rand.NewPCG(seed, 1))}
		s.before(0)
		fmt.Fprintf(&s.b, "rules: # %d.\n", s.number())
		s.sequence(s.r.IntN(4), 1)
		s.before(0)
		s.mapping(0, 0)
		src := s.b.String()
		out, err := rulefile.Format("x.yaml", []byte(src))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, src)
		}
		if again, err := rulefile.Format("x.yaml", out); err != nil || string(again) != string(out) {
			t.Fatalf("seed %d: %v\n%s\nthen\n%s\nthen\n%s", seed, err, src, out, again)
		}
		checkComments(t, seed, src, string(out), s.comments)
	}
}

func checkComments(t *testing.T, seed uint64, src, out string, comments int) {
	t.Helper()
	lines := strings.Split(out, "\n")
	seen := 0
	for i, line := range lines {
		if strings.TrimRight(line, " \t") != line || line == "" && i+1 < len(lines) && lines[i+1] == "" {
			t.Fatalf("seed %d: line %d has spaces at its end, or is one blank line too many\n%s", seed, i+1, out)
		}
		_, number, above := strings.Cut(line, "above ")
		for next := i + 1; above && next < len(lines); next++ {
			if text := strings.TrimSpace(lines[next]); text != "" && text[0] != '#' {
				if !strings.Contains(text, number) {
					t.Fatalf("seed %d: the comment of line %d was not above that value\n%s\n%s", seed, i+1, src, out)
				}
				seen++
				break
			}
		}
		if rest, number, behind := strings.Cut(line, "# behind "); behind {
			if seen++; !strings.Contains(rest, number) {
				t.Fatalf("seed %d: the comment of line %d was not behind that value\n%s\n%s", seed, i+1, src, out)
			}
		}
	}
	if seen != comments {
		t.Fatalf("seed %d: %d of %d comments are there\n%s\n%s", seed, seen, comments, src, out)
	}
}
