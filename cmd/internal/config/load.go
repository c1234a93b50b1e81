package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// Default is the configuration without a file.
func Default() Config {
	var c Config
	d := decoder{to: &c}
	d.readDefaults(c.settings())
	if d.Count() > 0 {
		faults, _ := d.Faults()
		panic(fmt.Sprint("config: a default is at fault: ", faults)) // the tests look at each
	}
	return c
}

// Load reads a file. The error joins all faults, each a [*rules.Error]; the configuration has the settings without any. Paths
// in it are taken from the file's directory.
func Load(path string) (Config, error) {
	data, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	return Read(path, data)
}

// Read reads the content of a file, as [Load] does.
func Read(path string, data []byte) (Config, error) {
	if IsEmpty(data) {
		// What a full disk leaves: the defaults have none of the rules that this process is to apply.
		return Config{}, &rules.Error{Pos: rules.Position{File: path}, Msg: "the file is empty: write settings, or {} for the defaults"}
	}
	if n := rulesOf(data); n != nil {
		return Config{}, &rules.Error{
			Pos: rules.Position{File: path, Line: n.Line, Column: n.Column},
			Msg: fmt.Sprintf("this is a rule file: write rules: {paths: [%s]} to another file, the configuration, and name that", filepath.Base(path)),
		}
	}
	c, err := Parse(path, data, os.LookupEnv)
	c.resolve(filepath.Dir(path))
	return c, err
}

// rulesOf returns what a rule file is known by, or nil for another file.
func rulesOf(data []byte) *strictyaml.Node {
	root := strictyaml.ParseAll(data)[0].Root
	if root == nil || root.Kind != strictyaml.Mapping || IsServiceConfig(data) {
		return nil
	}
	for i := range root.Fields {
		if key := root.Fields[i].Key; slices.Contains([]string{"rules", "domain", "descriptors", "attributes"}, key.Text) {
			return key
		}
	}
	return nil
}

// Sound reports whether none of some settings or sections has an error.
func (c *Config) Sound(names ...string) bool { return (&decoder{broken: c.broken}).sound(names...) }

func readFile(path string) ([]byte, error) {
	fault := func(format string, args ...any) error {
		return &rules.Error{Pos: rules.Position{File: path}, Msg: fmt.Sprintf(format, args...)}
	}
	data, err := plainfile.Read(path, strictyaml.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault("there is no such file")
	case errors.Is(err, plainfile.ErrTooLarge):
		return nil, fault("the file has more than %d bytes: split it", strictyaml.MaxBytes)
	case err != nil:
		return nil, fault("cannot be read: %v", errors.Unwrap(err))
	}
	return data, nil
}

// Parse reads the content of a file, as [Load] does. Variables are looked up with env.
func Parse(name string, data []byte, env func(string) (string, bool)) (parsed Config, err error) {
	defer panics.Recover(func(e *panics.Error) {
		parsed, err = Config{}, errors.Join(&rules.Error{Pos: rules.Position{File: name}, Msg: e.Error(), Err: e})
	})
	c := Default()
	d := decoder{to: &c, env: env}
	root, found := strictyaml.Parse(data)
	if root != nil && root.Kind != strictyaml.Null {
		d.section(root, sections(c.settings()), "")
		d.check(root)
	}
	faults, more := d.Faults()
	found = append(found, faults...)
	slices.SortStableFunc(found, func(a, b strictyaml.Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	if len(found) == 0 {
		return c, nil
	}
	var all []error
	for _, f := range found {
		all = append(all, &rules.Error{Pos: rules.Position{File: name, Line: f.Line, Column: f.Column}, Msg: f.Msg})
	}
	if more > 0 {
		all = append(all, &rules.Error{Pos: rules.Position{File: name}, Msg: fmt.Sprintf("there are %d more faults", more)})
	}
	c.broken = append(d.broken, unknownPart(root)...)
	return c, errors.Join(all...)
}

// unknownPart names the whole if nothing of a file could be read.
func unknownPart(root *strictyaml.Node) []string {
	if root == nil || root.Kind != strictyaml.Mapping {
		return []string{""}
	}
	return nil
}

// resolve takes relative paths from a directory.
func (c *Config) resolve(directory string) {
	paths := []*string{
		&c.GRPC.TLS.Cert, &c.GRPC.TLS.Key, &c.GRPC.TLS.ClientCA, &c.HTTP.TLS.Cert, &c.HTTP.TLS.Key, &c.HTTP.TLS.ClientCA,
		&c.Admin.TLS.Cert, &c.Admin.TLS.Key, &c.Admin.TLS.ClientCA, &c.Admin.TokenFile,
		&c.RESP.TLS.Cert, &c.RESP.TLS.Key, &c.RESP.TLS.ClientCA, &c.RESP.PasswordFile,
		&c.Store.Snapshot, &c.Store.PasswordFile, &c.Store.TLS.CA, &c.Store.TLS.Cert, &c.Store.TLS.Key,
		&c.Check.SecretFile, &c.Check.RefundTokenFile,
		&c.Queue.Directory, &c.Queue.CredentialsFile, &c.Queue.TLS.CA, &c.Queue.TLS.Cert, &c.Queue.TLS.Key, &c.Queue.KeyFile,
		&c.Logging.SecretFile,
	}
	for _, to := range []*Collector{&c.Tracing.Collector, &c.Metrics.OTLP.Collector} {
		paths = append(paths, &to.HeadersFile, &to.TLS.CA, &to.TLS.Cert, &to.TLS.Key)
	}
	paths = append(paths, c.Gateway.files()...)
	paths = append(paths, c.Gateway.certificateFiles()...)
	paths = append(paths, c.Authentication.files()...)
	for i := range c.Rules.Paths {
		paths = append(paths, &c.Rules.Paths[i])
	}
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(directory, *p)
		}
	}
}

// IsEmpty reports whether a file is empty or has only comments.
func IsEmpty(data []byte) bool {
	root, found := strictyaml.Parse(data)
	return len(found) == 0 && (root == nil || root.Kind == strictyaml.Null)
}

// IsServiceConfig reports whether a file is a service's configuration. A rule file has a list of rules, or no section that a
// configuration has.
func IsServiceConfig(data []byte) bool {
	root, _ := strictyaml.Parse(data)
	if root == nil || root.Kind != strictyaml.Mapping {
		return false
	}
	for name := range sections(Settings()).below {
		n := root.Field(name)
		if n != nil && (name != "rules" || n.Kind == strictyaml.Mapping) || name != "rules" && slices.Contains(root.Lost, name) {
			return true
		}
	}
	return false
}
