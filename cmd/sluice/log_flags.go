package main

import (
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
)

// logFlags are the flags of commands that read logs.
type logFlags struct {
	format  string
	columns string
	proxies prefixes
}

func (f *logFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.format, "format", "", "log format (default: detected)")
	c.Flags().StringVar(&f.columns, "columns", "", "CSV columns or JSON fields, such as time=TIMESTAMP,ip=peer")
	c.Flags().Var(&f.proxies, "trusted-proxies", "proxies whose X-Forwarded-For is read, such as 10.0.0.0/8")
	term.CompleteFlag(c, "format", logs.FormatNames()...)
	term.CompleteFlag(c, "columns")
	term.CompleteFlag(c, "trusted-proxies")
}

func (f *logFlags) options() logs.Options {
	return logs.Options{Format: f.format, Columns: f.columns, TrustedProxies: f.proxies}
}

// prefixes is a flag with networks and addresses, separated by commas.
type prefixes []netip.Prefix

// Set implements pflag.Value.
func (p *prefixes) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if a, err := netip.ParseAddr(one); err == nil {
			*p = append(*p, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(one)
		if err != nil {
			return err
		}
		*p = append(*p, network)
	}
	return nil
}

func (p *prefixes) String() string {
	var all []string
	for _, one := range *p {
		all = append(all, one.String())
	}
	return strings.Join(all, ",")
}

// Type returns the name of the type for the help.
func (p *prefixes) Type() string { return "networks" }
