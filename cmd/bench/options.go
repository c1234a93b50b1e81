package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
)

// errUsage is returned for invalid flags, after the error was printed.
var errUsage = errors.New("usage")

type options struct {
	quick      bool
	only       string
	contenders string
	reps       int
	output     string
	seed       uint64
	unpinned   bool
	child      string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := new(options)
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.quick, "quick", false, "run for about a minute: fewer operations, no repetitions, no 5M keys")
	f.StringVar(&o.only, "only", "", "comma-separated `scenarios` to run; default all")
	f.StringVar(&o.contenders, "contenders", "", "comma-separated `names` of contenders to measure; default all")
	f.IntVar(&o.reps, "reps", 0, "`repetitions` of each timed scenario; default 5, or 1 with -quick")
	f.StringVar(&o.output, "o", "text", "output `format`: text or json")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of the order of keys")
	f.BoolVar(&o.unpinned, "unpinned", false, "let a Redis server and its clients run on any CPU")
	f.StringVar(&o.child, "child", "", "run one `job` and print its result; bench calls itself with this")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, errUsage
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.output != "text" && o.output != "json":
		err = fmt.Errorf("-o %s: use text or json", o.output)
	case o.reps < 0:
		err = fmt.Errorf("-reps %d: use at least 1", o.reps)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return nil, errUsage
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.child != "" {
		return runChild(o.child, stdout)
	}
	chosen, err := choose(o.contenders)
	if err != nil {
		return err
	}
	picked, err := pick(scenarios(o.quick, o.reps), o.only)
	if err != nil {
		return err
	}
	r := &runner{
		contenders: chosen, scenarios: picked, quick: o.quick, seed: o.seed, procs: []int{1},
		progress: newProgress(stderr),
	}
	if !o.unpinned {
		r.pins = findPins()
	}
	if n := runtime.NumCPU(); n > 1 {
		r.procs = append(r.procs, n)
	}
	done, err := buildServices(ctx, chosen, picked, r.progress)
	if err != nil {
		return err
	}
	defer done()
	if err := r.run(ctx); err != nil {
		return err
	}
	rep := r.report()
	if o.output == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(rep)
	} else {
		err = rep.write(stdout)
	}
	if err == nil && len(rep.Invalid) > 0 {
		err = fmt.Errorf("%d measurements are invalid", len(rep.Invalid))
	}
	return err
}
