package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// Default returns the configuration without a file: the defaults of all settings.
func Default() Config {
	var c Config
	d := decoder{to: &c}
	d.readDefaults(c.settings())
	if d.Count() > 0 {
		faults, _ := d.Faults()
		panic(fmt.Sprint("config: invalid default: ", faults)) // cannot happen: the tests read every default
	}
	return c
}

// Load reads a file. Its error joins all errors of the file, each a [*rules.Error]; the configuration then contains the valid
// settings. Relative paths are resolved against the file's directory.
func Load(path string) (Config, error) {
	data, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	return Read(path, data)
}

// Read parses the content of a file like [Load]. Path is the name of the file in errors and the base of relative paths.
func Read(path string, data []byte) (Config, error) {
	if IsEmpty(data) {
		// A full disk can leave an empty file. Starting with the defaults would drop all of the operator's rules.
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

// rulesOf returns the key that shows that a file is a rule file, or nil if it is not.
func rulesOf(data []byte) *strictyaml.Node {
	root := strictyaml.ParseAll(data)[0].Root
	if root == nil || root.Kind != strictyaml.Mapping || IsServiceConfig(data) {
		return nil
	}
	for i := range root.Fields {
		if key := root.Fields[i].Key; slices.Contains(ruleFileKeys, key.Text) {
			return key
		}
	}
	return nil
}

// Sound reports whether none of the named settings and sections has an error.
func (c *Config) Sound(names ...string) bool { return (&decoder{broken: c.broken}).sound(names...) }

func readFile(path string) ([]byte, error) {
	fault := func(format string, args ...any) error {
		return &rules.Error{Pos: rules.Position{File: path}, Msg: fmt.Sprintf(format, args...)}
	}
	data, err := plainfile.Read(path, strictyaml.MaxBytes)
	switch {
	case errors.Is(err, plainfile.ErrTooLarge):
		return nil, fault("the file has more than %d bytes: split it", strictyaml.MaxBytes)
	case err != nil:
		return nil, fault("%s", plainfile.Reason(err))
	}
	return data, nil
}

// Parse parses the content of a file like [Load], but keeps relative paths. Env looks up environment variables.
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
		all = append(all, &rules.Error{Pos: rules.Position{File: name}, Msg: fmt.Sprintf("%d more errors", more)})
	}
	c.broken = append(d.broken, unknownPart(root)...)
	return c, errors.Join(all...)
}

// unknownPart returns the name of the whole file, "", if nothing of it could be read.
func unknownPart(root *strictyaml.Node) []string {
	if root == nil || root.Kind != strictyaml.Mapping {
		return []string{""}
	}
	return nil
}

// resolve makes relative paths absolute, starting from a directory.
func (c *Config) resolve(directory string) {
	paths := []*string{
		&c.GRPC.TLS.CertFile, &c.GRPC.TLS.KeyFile, &c.GRPC.TLS.ClientCAFile, &c.HTTP.TLS.CertFile, &c.HTTP.TLS.KeyFile, &c.HTTP.TLS.ClientCAFile,
		&c.Admin.TLS.CertFile, &c.Admin.TLS.KeyFile, &c.Admin.TLS.ClientCAFile, &c.Admin.TokenFile,
		&c.RESP.TLS.CertFile, &c.RESP.TLS.KeyFile, &c.RESP.TLS.ClientCAFile, &c.RESP.PasswordFile,
		&c.Store.SnapshotFile, &c.Store.PasswordFile, &c.Store.TLS.CAFile, &c.Store.TLS.CertFile, &c.Store.TLS.KeyFile,
		&c.CheckAPI.ReservationSecretFile, &c.CheckAPI.RefundTokenFile,
		&c.Queue.Directory, &c.Queue.CredentialsFile, &c.Queue.TLS.CAFile, &c.Queue.TLS.CertFile, &c.Queue.TLS.KeyFile, &c.Queue.EncryptionKeyFile,
		&c.Logging.SecretFile,
	}
	for _, to := range []*Collector{&c.Tracing.Collector, &c.Metrics.OTLP.Collector} {
		paths = append(paths, &to.HeadersFile, &to.TLS.CAFile, &to.TLS.CertFile, &to.TLS.KeyFile)
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

// IsEmpty reports whether a file is empty or contains only comments.
func IsEmpty(data []byte) bool {
	root, found := strictyaml.Parse(data)
	return len(found) == 0 && (root == nil || root.Kind == strictyaml.Null)
}

// IsServiceConfig reports whether a file is a service configuration: it has a section of one, and rules, if present, is not a
// list as in rule files.
func IsServiceConfig(data []byte) bool {
	root, _ := strictyaml.Parse(data)
	if root == nil || root.Kind != strictyaml.Mapping {
		return false
	}
	top := sections(Settings())
	for name := range top.below {
		n := root.Field(name)
		if n != nil && (name != "rules" || isRulesSection(n, top.below[name])) || name != "rules" && slices.Contains(root.Lost, name) {
			return true
		}
	}
	return hasRenamedSection(root) || hasMisspeltSection(root, top)
}

// isRulesSection reports whether rules is the section of a configuration: a mapping with at least one of its keys, or empty.
func isRulesSection(n *strictyaml.Node, s *section) bool {
	return n.Kind == strictyaml.Mapping && (len(n.Fields) == 0 || slices.ContainsFunc(n.Fields, func(f strictyaml.Field) bool {
		return s.below[f.Key.Text] != nil || suggest.Closest(f.Key.Text, known(s)) != ""
	}))
}

// ruleFileKeys are keys that show that a file is a rule file.
var ruleFileKeys = []string{"rules", "domain", "descriptors", "attributes"}

// hasMisspeltSection reports whether a file that has no key of a rule file has a key that resembles a section.
func hasMisspeltSection(root *strictyaml.Node, top *section) bool {
	names := slices.DeleteFunc(known(top), func(name string) bool { return name == "rules" })
	some := false
	for _, f := range root.Fields {
		if slices.Contains(ruleFileKeys, f.Key.Text) {
			return false
		}
		some = some || suggest.Closest(f.Key.Text, names) != ""
	}
	return some
}
