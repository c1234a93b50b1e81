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

// What the demo runs: sluice serve with this configuration and these rules.
var (
	//go:embed sluice.yaml
	serviceConfig []byte
	//go:embed rules.yaml
	Rules []byte
)

// Options are what can be said about the demo.
type Options struct {
	Version   string // of the program
	Listen    string // address of the gateway; with port 0 everything is on free ports
	Chosen    bool   // Listen was given on the command line: it is used or the demo fails
	NoTraffic bool   // no made-up clients
}

// Run is the demo until the context ends.
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

// RulesFile is where the rules are, in the demo's directory.
const RulesFile = "rules/api.yaml"

// NewDirectory makes a directory for what the demo writes, with the rules in it. Those of Envoy's domain are what sluice
// serve has without any.
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

// places are where the demo is to listen.
type places struct {
	variables map[string]string // of the configuration
	taken     []string          // where something else listens
}

// places finds them: the usual ports, where they are free.
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
