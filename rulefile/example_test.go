package rulefile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	const text = `
attributes:
  user: {jwt: sub}
rules:
  - name: posts-per-user
    match: {method: POST, path: /posts}
    per: [user]
    limit: 2/s
`
	if err := os.WriteFile(filepath.Join(dir, "posts.yaml"), []byte(text), 0o600); err != nil {
		panic(err)
	}
	loaded, err := rulefile.Load(rulefile.Options{}, dir)
	if err != nil {
		panic(err)
	}
	for _, rule := range loaded.Set.Config().Rules {
		fmt.Println(rule.Name, rule.Limits[0].Limit)
	}
	// Output: posts-per-user 2/s
}

func ExampleParse() {
	_, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(`
rules:
  - name: signups
    match: {method: POST, pth: /accounts}
    limit: 10
`)})
	fmt.Println(err)
	// Output:
	// rules.yaml:4:27: rule "signups": match: there is no key "pth": did you mean "path"?
	// rules.yaml:5:12: rule "signups": limit: 10 has no unit: write 10/min, or another unit: s, min, h, day, week, month
}

// A file in the format of Envoy's rate limit service.
func ExampleParse_envoy() {
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "auth.yaml", Data: []byte(`
domain: auth
descriptors:
  - key: auth_type
    value: login
    rate_limit: {unit: minute, requests_per_unit: 5}
`)})
	if err != nil {
		panic(err)
	}
	if _, err := rules.New(cfg); err != nil {
		panic(err)
	}
	login := cfg.Domains[0].Descriptors[0]
	fmt.Println(login.Key, login.Value, login.Limits[0].Limit)
	// Output: auth_type login 5/min fixed_window
}

func ExampleReadFiles() {
	_, err := rulefile.ReadFiles("no-such-file.yaml")
	fmt.Println(err)
	// Output: no-such-file.yaml: there is no such file or directory
}

func ExampleKeys() {
	fmt.Println(rulefile.Keys()["charge"], rulefile.Keys()["paths"])
	// Output: [status] [ignore_case]
}

// Rules that are not in files, but in a database or embedded in the program.
func ExampleLoadFiles() {
	loaded, err := rulefile.LoadFiles(rulefile.Options{}, rulefile.File{Name: "embedded.yaml", Data: []byte(`
rules:
  - name: api
    limit: 10/s
`)})
	if err != nil {
		panic(err)
	}
	fmt.Println(loaded.Set.RuleNames())
	// Output: [api]
}
