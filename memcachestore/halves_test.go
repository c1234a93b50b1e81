package memcachestore_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// door lists the names of the kit that the files for Memcached may use: those that a public package would export.
var door = []string{
	"backend", "swap", "stored", "value", "version", "key", "old", "ttl", "overwrite", "lost", "maxValue", "forever",
	"kit", "newKit", "kitConfig", "pkg", "keyPrefix", "timeout", "now", "pick",
	"Apply", "Reset", "Block", "Blocked", "Ping", "close", "shardOf", "eachShard", "unusedKey", "casConflicts", "refunds",
}

// TestHalves checks that the kit uses nothing of the files for Memcached, and that those use only the names in door. So
// the kit's files can become a separate package.
func TestHalves(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	faults, used := checkHalves(t, files)
	for _, fault := range faults {
		t.Error(fault)
	}
	for _, name := range door {
		if !used[name] {
			t.Errorf("door lists %s, which no file for Memcached uses: remove it", name)
		}
	}
}

func isKit(file string) bool { return strings.HasPrefix(file, "kit") }

// checkHalves returns forbidden uses across the boundary, and the names of door that are used across it.
func checkHalves(t *testing.T, texts map[string]string) (faults []string, used map[string]bool) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f, err := parser.ParseFile(fset, name, texts[name], 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		// Comments count too: a comment in the kit must not refer to Memcached.
		if _, body, _ := strings.Cut(texts[name], "\n"); isKit(name) && strings.Contains(strings.ToLower(body), "memcache") {
			faults = append(faults, name+" mentions Memcached")
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // errors are about imports; the compiler finds others
	pkg, _ := config.Check("memcachestore", fset, files, info)
	fileOf := func(pos token.Pos) string { return fset.Position(pos).Filename }
	used = map[string]bool{}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || isKit(fileOf(id.Pos())) == isKit(fileOf(obj.Pos())) {
			continue
		}
		if !isKit(fileOf(id.Pos())) && slices.Contains(door, obj.Name()) {
			used[obj.Name()] = true
			continue
		}
		faults = append(faults, fmt.Sprintf("%s uses %s of %s", fset.Position(id.Pos()), obj.Name(), fileOf(obj.Pos())))
	}
	for _, obj := range info.Defs { // another package cannot declare methods of a type
		if f, ok := obj.(*types.Func); ok && f.Signature().Recv() != nil {
			named, ok := types.Unalias(deref(f.Signature().Recv().Type())).(*types.Named)
			if ok && isKit(fileOf(f.Pos())) != isKit(fileOf(named.Obj().Pos())) {
				faults = append(faults, fmt.Sprintf("%s declares a method of %s", fset.Position(f.Pos()), named.Obj().Name()))
			}
		}
	}
	return faults, used
}

func deref(t types.Type) types.Type {
	if p, ok := t.(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// noImports imports nothing, because declarations of other packages do not matter here.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// TestHalvesBite checks that every kind of forbidden use is found.
func TestHalvesBite(t *testing.T) {
	kit := "package p\n\nimport \"time\"\n\ntype kit struct{ shards int; timeout time.Duration }\n\nfunc (s *kit) Apply() {}\n\nfunc help() {}\n"
	other := "package p\n\nimport \"net\"\n\ntype server struct{ net.Conn; kit *kit }\n\nfunc dial(s *server) { s.kit.Apply() }\n"
	for name, tt := range map[string]struct{ kit, other, want string }{
		"fine":              {"", "", ""},
		"type":              {"var v server", "", "uses server of other.go"},
		"function":          {"func f() { dial(nil) }", "", "uses dial of other.go"},
		"field of another":  {"func f(x interface{ get() *kit }) { x.get().conns() }", "func (s *kit) conns() {}", "uses conns of other.go"},
		"in a call of net":  {"func f() { time.After(dial) }", "", "uses dial of other.go"},
		"word":              {"// Memcached is slow.", "", "kit_a.go mentions Memcached"},
		"beside the door":   {"", "func f() { help() }", "uses help of kit_a.go"},
		"field":             {"", "func f(s *server) { net.Dial(s.kit.shards) }", "uses shards of kit_a.go"},
		"method of the kit": {"", "func (s *kit) f() {}", "declares a method of kit"},
	} {
		faults, _ := checkHalves(t, map[string]string{"kit_a.go": kit + tt.kit, "other.go": other + tt.other})
		all := strings.Join(faults, "\n")
		if tt.want == "" && all != "" || !strings.Contains(all, tt.want) {
			t.Errorf("%s: %q, want %q", name, all, tt.want)
		}
	}
}
