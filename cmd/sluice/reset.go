package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// resetFlags say whether all keys of a rule are meant.
type resetFlags struct{ all, yes, dryRun bool }

func resetCommand() *cobra.Command {
	var r resetFlags
	c := bucketCommand("reset", "Forget what somebody has spent",
		"Forget what was spent of limits in a running service, and lift a block. The service's log says who did it.\n\n"+
			"With --all, forget what all keys of a rule have spent. With Redis the keys are found step by step, with a line of\n"+
			"progress for each second; in memory it is done at once, and not known how many there were. Memcached cannot find the\n"+
			"keys of a rule.",
		"  sluice reset posts-per-user user=ada\n"+
			"  sluice reset --request 'POST /posts' -H 'X-User: ada'\n"+
			"  sluice reset posts-per-user --all --dry-run\n"+
			"  sluice reset posts-per-user --all --yes",
		func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error {
			if err := r.check(s); err != nil {
				return err
			}
			if r.all {
				return resetAll(c, &f.live, adminmsg.RuleReset{Rule: s.Rule, DryRun: r.dryRun})
			}
			return call(c, &f.live, http.MethodPost, "/v1/reset", s, admincli.WriteReset)
		})
	c.Flags().BoolVar(&r.all, "all", false, "all keys of the rule; needs --yes or --dry-run")
	c.Flags().BoolVar(&r.yes, "yes", false, "with --all: do it")
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "with --all: count what would be removed, and remove nothing")
	return c
}

// check tells what is wrong with the flags.
func (r *resetFlags) check(s *adminmsg.Selector) error {
	switch {
	case !r.all && (r.yes || r.dryRun):
		return errors.New("--yes and --dry-run are for all keys of a rule: add --all")
	case r.all && (s.Rule == "" || len(s.Key) > 0):
		return errors.New("--all means all keys of a rule: sluice reset posts-per-user --all")
	case r.all && r.yes && r.dryRun:
		return errors.New("--yes removes and --dry-run does not: use one")
	case r.all && !r.yes && !r.dryRun:
		return fmt.Errorf("this forgets what all keys of %s have spent: add --yes, or --dry-run to count them first", s.Rule)
	}
	return nil
}

// resetAll resets all keys of a rule, page by page, and says how far it is.
func resetAll(c *cobra.Command, live *remoteFlags, page adminmsg.RuleReset) error {
	total := adminmsg.RuleWasReset{Rule: page.Rule, DryRun: page.DryRun}
	for {
		var done adminmsg.RuleWasReset
		if _, err := live.ask(c, http.MethodPost, "/v1/reset/rule", page, &done); err != nil {
			if total.Removed != nil && !page.DryRun {
				err = fmt.Errorf("%w (%s removed before that: run it again for the rest)", err, term.Thousands(*total.Removed))
			}
			return err
		}
		if done.Removed != nil {
			n := *done.Removed
			if total.Removed != nil {
				n += *total.Removed
			}
			total.Removed = &n
		}
		if page.After = done.Next; page.After == "" {
			break
		}
		if total.Removed != nil {
			fmt.Fprintf(c.ErrOrStderr(), "%s so far\n", term.Thousands(*total.Removed))
		}
	}
	if live.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), total)
	}
	return admincli.WriteRuleReset(&total, c.OutOrStdout(), term.NewStyle(c.OutOrStdout()))
}
