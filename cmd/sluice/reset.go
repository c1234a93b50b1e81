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

// resetFlags are the flags of the reset command.
type resetFlags struct{ all, yes, dryRun bool }

func resetCommand() *cobra.Command {
	var r resetFlags
	c := bucketCommand("reset", "Reset the usage of a key",
		"Reset the usage of limits in a running service to zero, and lift blocks. The service logs the operation and its operator.\n\n"+
			"With --all, reset all keys of a rule. With Redis the keys are scanned, and the command prints a line of progress\n"+
			"every second. With the memory store the reset is immediate, and the number of keys is unknown. Memcached does not\n"+
			"support --all, because it cannot list the keys of a rule.",
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
	c.Flags().BoolVar(&r.all, "all", false, "reset all keys of the rule; needs --yes or --dry-run")
	c.Flags().BoolVar(&r.yes, "yes", false, "confirm --all")
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "count the keys that --all would reset, and reset nothing")
	return c
}

// check returns an error if the flags do not fit together.
func (r *resetFlags) check(s *adminmsg.Selector) error {
	switch {
	case !r.all && (r.yes || r.dryRun):
		return errors.New("--yes and --dry-run need --all")
	case r.all && (s.Rule == "" || len(s.Key) > 0):
		return errors.New("--all resets all keys of one rule: write only the name of the rule, sluice reset posts-per-user --all")
	case r.all && r.yes && r.dryRun:
		return errors.New("--yes and --dry-run exclude each other: use one")
	case r.all && !r.yes && !r.dryRun:
		return fmt.Errorf("this resets the usage of all keys of rule %s: add --yes to confirm, or --dry-run to count the keys first", s.Rule)
	}
	return nil
}

// resetAll resets all keys of a rule, page by page, and prints progress.
func resetAll(c *cobra.Command, live *remoteFlags, page adminmsg.RuleReset) error {
	total := adminmsg.RuleWasReset{Rule: page.Rule, DryRun: page.DryRun}
	for {
		var done adminmsg.RuleWasReset
		if _, err := live.ask(c, http.MethodPost, "/v1/reset/rule", page, &done); err != nil {
			if total.Removed != nil && !page.DryRun {
				err = fmt.Errorf("%w (%s buckets and blocks were reset before the error: run the command again for the rest)", err, term.Thousands(*total.Removed))
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
		if page.PageToken = done.NextPageToken; page.PageToken == "" {
			break
		}
		if total.Removed != nil {
			fmt.Fprintf(c.ErrOrStderr(), "%s buckets and blocks so far\n", term.Thousands(*total.Removed))
		}
	}
	if live.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), total)
	}
	return admincli.WriteRuleReset(&total, c.OutOrStdout(), term.NewStyle(c.OutOrStdout()))
}
