package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/explain"
	"github.com/sluiceproject/sluice/internal/ruletest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// explainFlags are what explain is asked.
type explainFlags struct {
	out      output
	rules    ruleFlags
	paths    []string
	headers  []string
	cookies  []string
	claims   []string
	attrs    []string
	ip       string
	cost     int64
	domain   string
	snapshot string
	matching bool
}

func explainCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain [METHOD] PATH | --domain DOMAIN KEY=VALUE...",
		Short: "Say what the rules make of a request, and why",
		Long: "Match a request against every rule and say why each applies or not, whom it counts for, what its limit is,\n" +
			"and what would become of the request. Nothing is counted. What is left is that of a store in which nothing\n" +
			"was spent, or of a snapshot of one. Secrets are masked.\n\n" +
			"With --domain the request is one to an Envoy domain. Its arguments are the entries of a descriptor; a + stands\n" +
			"between several descriptors.",
		Example: "  sluice explain --rules rules/ 'POST /posts' -H 'X-User: ada'\n" +
			"  sluice explain --rules rules/ GET https://api.example.com/users/7 --ip 192.0.2.1 --claim sub=ada\n" +
			"  sluice explain --rules rules/ /search --snapshot /var/lib/sluice/state -o json\n" +
			"  sluice explain --rules rules/ --domain auth auth_type=login",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return fmt.Errorf("say which request: sluice explain 'POST /posts', or --domain auth auth_type=login")
			case f.domain == "" && len(args) > 2:
				return fmt.Errorf("%d arguments: write METHOD and PATH, and headers with -H 'X-User: ada'", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.out.flag(c)
	f.rules.flags(c)
	c.Flags().StringArrayVar(&f.paths, "rules", nil, "rule file or directory; may be repeated (default: here)")
	c.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "header of the request, 'Name: value'; may be repeated")
	c.Flags().StringArrayVar(&f.cookies, "cookie", nil, "cookie, name=value; may be repeated")
	c.Flags().StringArrayVar(&f.claims, "claim", nil, "claim of a verified token, name=value; may be repeated")
	c.Flags().StringArrayVar(&f.attrs, "attr", nil, "attribute that the program sets, name=value; may be repeated")
	c.Flags().StringVar(&f.ip, "ip", "", "address of the connection's peer")
	c.Flags().Int64Var(&f.cost, "cost", 0, "what the request costs, instead of what the rules say (hits, with --domain)")
	c.Flags().StringVar(&f.domain, "domain", "", "explain a request to this Envoy domain")
	c.Flags().StringVar(&f.snapshot, "snapshot", "", "snapshot of a memory store to look at")
	c.Flags().BoolVar(&f.matching, "matching", false, "leave out rules that do not match")
	_ = c.RegisterFlagCompletionFunc("rules", completeRules)
	for _, name := range []string{"header", "cookie", "claim", "attr", "ip", "cost", "domain"} {
		completeFlag(c, name)
	}
	return c
}

func (f *explainFlags) run(c *cobra.Command, args []string) error {
	if f.cost < 0 || f.cost > sluice.MaxCost {
		return fmt.Errorf("--cost %d: write a number of at least 1", f.cost)
	}
	loaded, err := f.rules.load(f.paths)
	if err != nil {
		return err
	}
	explainer, err := newExplainer(f.snapshot)
	if err != nil {
		return err
	}
	var x *explain.Answer
	if f.domain != "" {
		x, err = f.explainDomain(c, loaded.Set, explainer, args)
	} else {
		x, err = f.explainHTTP(c, loaded.Set, explainer, args)
	}
	if err != nil {
		return err
	}
	if f.out.json() {
		return writeJSON(c.OutOrStdout(), x)
	}
	return writeExplained(c.OutOrStdout(), x)
}

// request makes the HTTP request that the flags describe.
func (f *explainFlags) request(args []string) (*ruletest.HTTP, error) {
	h, err := ruletest.ParseSend(strings.Join(args, " "))
	if err != nil {
		return nil, err
	}
	for _, line := range f.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("-H %q: write 'Name: value'", line)
		}
		if err := h.AddHeader(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("-H: %w", err)
		}
	}
	cookies, err := pairs("--cookie", f.cookies)
	if err != nil {
		return nil, err
	}
	for _, p := range cookies {
		if err := h.AddCookie(p.Key, p.Value); err != nil {
			return nil, fmt.Errorf("--cookie: %w", err)
		}
	}
	if h.Claims, err = pairMap("--claim", f.claims); err != nil {
		return nil, err
	}
	if h.Attributes, err = pairMap("--attr", f.attrs); err != nil {
		return nil, err
	}
	if f.ip != "" {
		if h.Addr, err = netip.ParseAddr(f.ip); err != nil {
			return nil, fmt.Errorf("--ip %q: write an address, such as 192.0.2.1 or 2001:db8::1", f.ip)
		}
	}
	return h, nil
}

// pairs reads arguments of the form name=value.
func pairs(flag string, args []string) ([]rules.Entry, error) {
	var all []rules.Entry
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s %q: write name=value", flag, arg)
		}
		all = append(all, rules.Entry{Key: name, Value: value})
	}
	return all, nil
}

func pairMap(flag string, args []string) (map[string]string, error) {
	all, err := pairs(flag, args)
	m := make(map[string]string, len(all))
	for _, p := range all {
		m[p.Key] = p.Value
	}
	return m, err
}

func (f *explainFlags) explainHTTP(c *cobra.Command, set *rules.Set, p *explain.Explainer, args []string) (*explain.Answer, error) {
	h, err := f.request(args)
	if err != nil {
		return nil, err
	}
	return p.HTTP(c.Context(), set, h, f.cost, f.matching)
}

func (f *explainFlags) explainDomain(c *cobra.Command, set *rules.Set, p *explain.Explainer, args []string) (*explain.Answer, error) {
	d := &ruletest.Descriptors{Domain: f.domain, Each: []rules.Descriptor{{Cost: max(1, f.cost)}}}
	for _, arg := range args {
		if arg == "+" {
			d.Each = append(d.Each, rules.Descriptor{Cost: max(1, f.cost)})
			continue
		}
		entry, err := pairs("--domain "+f.domain, []string{arg})
		if err != nil {
			return nil, err
		}
		last := &d.Each[len(d.Each)-1]
		last.Entries = append(last.Entries, entry...)
	}
	return p.Domain(c.Context(), set, d)
}

// newExplainer looks at a copy of a store, which nobody else counts in.
func newExplainer(snapshot string) (*explain.Explainer, error) {
	store, err := openStore(snapshot)
	if err != nil {
		return nil, err
	}
	limiter, err := sluice.NewRules(store, nil)
	return &explain.Explainer{Limiter: limiter}, err
}

// openStore opens a store to look at: an empty one, or a snapshot's. It is never saved.
func openStore(snapshot string) (*memstore.Store, error) {
	if snapshot != "" {
		if _, err := os.Stat(snapshot); err != nil { // a store that is to be saved may begin without one
			return nil, fmt.Errorf("--snapshot: %w", err)
		}
	}
	return memstore.Open(memstore.Config{Snapshot: snapshot})
}
