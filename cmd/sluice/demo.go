package main

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

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/serve"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// What the demo runs: sluice serve with this configuration and these rules.
var (
	//go:embed demo/sluice.yaml
	demoConfig []byte
	//go:embed demo/rules.yaml
	demoGatewayRules []byte
)

// demoFlags are what can be said about the demo.
type demoFlags struct {
	listen    string
	chosen    bool // somebody said where
	noTraffic bool
}

func demoCommand() *cobra.Command {
	var f demoFlags
	var rules bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a small limited API on this machine, with curl commands to try on it",
		Long: "Run a small API with Sluice before it on this machine, and print curl commands that show a request that is\n" +
			"allowed, one that is answered 429 Too Many Requests, and one that is kept and done later. It is sluice serve with\n" +
			"a gateway, a queue and ten rules. Made-up clients keep it busy, so that sluice top has something to show.\n\n" +
			"It needs no configuration and keeps nothing. ctrl-C ends it.",
		Example: "  sluice demo\n  sluice demo --listen 127.0.0.1:9000\n  sluice demo --rules     # only print its rules",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if rules {
				_, err := c.OutOrStdout().Write(demoGatewayRules)
				return err
			}
			f.chosen = c.Flags().Changed("listen")
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8000", "address of the gateway; with port 0 everything is on free ports")
	c.Flags().BoolVar(&f.noTraffic, "no-traffic", false, "without made-up clients")
	c.Flags().BoolVar(&rules, "rules", false, "print the rules, and nothing else")
	return c
}

// run is the demo until the context ends.
func (f *demoFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	at, err := f.places()
	if err != nil {
		return err
	}
	dir, err := demoDirectory()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)
	api, err := startDemoAPI()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer api.close()

	at.variables["DIRECTORY"], at.variables["API"] = dir, api.address
	cfg, err := config.Parse("demo/sluice.yaml", demoConfig, func(name string) (string, bool) {
		value, ok := at.variables[name]
		return value, ok
	})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	out := logwriter.New(logwriter.Config{Output: stdout})
	defer out.Close(term.OutputTimeout)
	s, err := serve.New(ctx, cfg, serve.Options{Version: version(), Log: stderr, Beside: func(ctx context.Context, s *serve.Service) {
		addrs := s.Addrs()
		g := demoGuide{
			gateway: addrs["gateway"].String(), http: addrs["http"].String(), grpc: addrs["grpc"].String(),
			admin: addrs["admin"].String(), rules: filepath.Join(dir, demoRulesFile), taken: at.taken,
		}
		g.write(out)
		if !f.noTraffic {
			demoTraffic(ctx, s.Gateway())
		}
	}})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// demoRulesFile is where the rules are, in the demo's directory.
const demoRulesFile = "rules/api.yaml"

// demoDirectory makes a directory for what the demo writes, with the rules in it. Those of Envoy's domain are what sluice
// serve has without any.
func demoDirectory() (string, error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return "", err
	}
	err = os.Mkdir(filepath.Join(dir, "rules"), 0o700)
	for name, content := range map[string][]byte{demoRulesFile: demoGatewayRules, "rules/envoy.yaml": []byte(serve.BuiltInRules)} {
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
func (f *demoFlags) places() (places, error) {
	usual := config.Default()
	p := places{
		variables: map[string]string{
			"GATEWAY": f.listen, "HTTP": usual.HTTP.Address, "GRPC": usual.GRPC.Address, "ADMIN": usual.Admin.Address,
		},
	}
	_, port, _ := net.SplitHostPort(f.listen)
	for name, address := range p.variables {
		if name != "GATEWAY" && port == "0" {
			p.variables[name] = freePort
			continue
		}
		l, err := net.Listen("tcp", address)
		switch {
		case err == nil:
			_ = l.Close()
		case errors.Is(err, syscall.EADDRINUSE) && (name != "GATEWAY" || !f.chosen):
			p.variables[name], p.taken = freePort, append(p.taken, address)
		default:
			return p, fmt.Errorf("demo: %w: choose another address with --listen 127.0.0.1:PORT", err)
		}
	}
	slices.Sort(p.taken)
	return p, nil
}

const freePort = "127.0.0.1:0"
