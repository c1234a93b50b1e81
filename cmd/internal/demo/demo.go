package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/serve"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// Configuration and rules of the demo, which runs sluice serve.
var (
	//go:embed sluice.yaml
	serviceConfig []byte
	//go:embed rules.yaml
	Rules []byte
)

// Options are the flags of the demo.
type Options struct {
	Version   string // of the program
	Listen    string // address of the gateway; with port 0 all listeners use free ports
	Chosen    bool   // Listen was given on the command line; the demo fails if the address is in use
	NoTraffic bool   // run no synthetic clients
}

// Run runs the demo until ctx is done.
func Run(ctx context.Context, f Options, stdout, stderr io.Writer) error {
	at, err := f.places()
	if err != nil {
		return err
	}
	dir, err := NewDirectory()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)
	api, err := startAPI()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer api.close()

	at.variables["DIRECTORY"], at.variables["API"] = dir, api.address
	cfg, err := config.Parse("demo/sluice.yaml", serviceConfig, func(name string) (string, bool) {
		value, ok := at.variables[name]
		return value, ok
	})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	out := logwriter.New(logwriter.Config{Output: stdout})
	defer out.Close(term.OutputTimeout)
	s, err := serve.New(ctx, cfg, serve.Options{Version: f.Version, Log: stderr, Background: func(ctx context.Context, s *serve.Service) {
		addrs := s.Addrs()
		g := guide{
			gateway: addrs["gateway"].String(), http: addrs["http"].String(), grpc: addrs["grpc"].String(),
			admin: addrs["admin"].String(), rules: filepath.Join(dir, RulesFile), taken: at.taken,
		}
		g.write(out)
		if !f.NoTraffic {
			sendTraffic(ctx, s.Gateway())
		}
	}})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// RulesFile is the path of the rule file in the demo's directory.
const RulesFile = "rules/api.yaml"

// NewDirectory creates a temporary directory for the files of the demo and writes the rules into it. The rules of the Envoy domain
// are the built-in rules of sluice serve.
func NewDirectory() (string, error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return "", err
	}
	err = os.Mkdir(filepath.Join(dir, "rules"), 0o700)
	for name, content := range map[string][]byte{RulesFile: Rules, "rules/envoy.yaml": []byte(serve.BuiltInRules)} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	return dir, err
}

// places are the addresses of the demo's listeners.
type places struct {
	variables map[string]string // of the configuration file
	taken     []string          // default addresses in use by other programs
}

// places returns the default addresses, with free ports instead of ports in use.
func (f *Options) places() (places, error) {
	usual := config.Default()
	p := places{
		variables: map[string]string{
			"GATEWAY": f.Listen, "HTTP": usual.HTTP.Address, "GRPC": usual.GRPC.Address, "ADMIN": usual.Admin.Address,
		},
	}
	_, port, _ := net.SplitHostPort(f.Listen)
	for name, address := range p.variables {
		if name != "GATEWAY" && port == "0" {
			p.variables[name] = freePort
			continue
		}
		l, err := net.Listen("tcp", address)
		switch {
		case err == nil:
			_ = l.Close()
		case errors.Is(err, syscall.EADDRINUSE) && (name != "GATEWAY" || !f.Chosen):
			p.variables[name], p.taken = freePort, append(p.taken, address)
		default:
			return p, fmt.Errorf("demo: %w: choose another address with --listen 127.0.0.1:PORT", err)
		}
	}
	slices.Sort(p.taken)
	return p, nil
}

const freePort = "127.0.0.1:0"
