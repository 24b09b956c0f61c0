package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/server/metrics"
	"github.com/auditledger/auditledger/server/policy"
)

type exporterOptions struct {
	listen      string
	policies    []string
	verifyEvery time.Duration
	checkpoint  string
	textfile    string
}

func newExporter() *cobra.Command {
	var o exporterOptions
	c := &cobra.Command{
		Use:   "exporter [DIR…]",
		Short: "Show ledgers to Prometheus",
		Long: `exporter follows ledgers and shows Prometheus what they hold: calls per tool and
outcome, denials, calls in doubt, how far they are anchored, and the verdict of
a verification. It writes nothing into a ledger. Totals begin with the first
record and do not end with a process. A ledger may be absent and come later.

Tools are told apart by the names that the policies allow or deny; every other
name is "other". SIGHUP reads the policies again; where one is bad, the names
stay as they are. /readyz is 200 once the totals of all ledgers are known.

What is new is verified at each --verify-every, everything at the start, once a
day, at once where a record is gone that was read before, and after a verdict
that was not good. A record that was read must stay in the ledger: where it is
gone the verdict is tampered, also after a restart, until the checkpoint file is
deleted or the record is back.

The checkpoint file keeps where reading and verifying goes on after a restart.
It is $STATE_DIRECTORY/exporter.json, else auditledger/exporter.json in the
user's cache directory. Without it every record is read again.

With --textfile it reads and verifies once, writes FILE for the node exporter,
and ends. FILE tells the series of anchoring too: the node exporter takes them
from one file only, so leave out --textfile of "anchor push" then.

Exit status: 0 ended by SIGINT or SIGTERM, or FILE is written, 2 wrong usage, 3
it could not start: the address is taken, or a policy cannot be read or is none;
with --textfile: a ledger is missing or unreadable (FILE is written all the
same, and says so), or FILE could not be written.`,
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("checkpoint") {
				o.checkpoint = checkpointFile(c.ErrOrStderr())
			}
			switch {
			case o.verifyEvery < 0:
				return usageError{errors.New("--verify-every takes a time that is not negative, such as 5m")}
			case o.textfile != "" && c.Flags().Changed("listen"):
				return usageError{errors.New("--textfile writes once and ends, --listen goes on: give one of them")}
			case len(args) == 0:
				args = []string{dirOf(nil)}
			}
			return runExporter(c.Context(), o, args, c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:9464", "HOST:PORT to serve on; without HOST loopback alone")
	f.StringArrayVar(&o.policies, "policy", nil, "policy file that names tools; may be given again (default $POLICY_PATH, else policy.json where it is there)")
	f.DurationVar(&o.verifyEvery, "verify-every", 5*time.Minute, "verify what is new so often; 0 never verifies")
	f.StringVar(&o.checkpoint, "checkpoint", "", "file that keeps what was read; --checkpoint= keeps nothing")
	f.StringVar(&o.textfile, "textfile", "", "write this file once, and serve nothing")
	return c
}

// checkpointFile is where the checkpoint is where nobody says; "" for nowhere.
func checkpointFile(stderr io.Writer) string {
	if dirs := filepath.SplitList(os.Getenv("STATE_DIRECTORY")); len(dirs) > 0 {
		return filepath.Join(dirs[0], "exporter.json")
	}
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "auditledger")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		fmt.Fprintf(stderr, "ledgerctl: there is no place for a checkpoint, so each start reads every record: %v; give --checkpoint\n", err)
		return ""
	}
	return filepath.Join(dir, "exporter.json")
}

// loadPolicies reads what names the tools. Without any file there are no names.
func loadPolicies(files []string) ([]*policy.Policy, error) {
	if len(files) == 0 {
		file := policyFile(nil)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && os.Getenv("POLICY_PATH") == "" {
			return nil, nil
		}
		files = []string{file}
	}
	var all []*policy.Policy
	for _, file := range files {
		p, err := policy.Load(file)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func runExporter(ctx context.Context, o exporterOptions, dirs []string, stderr io.Writer) error {
	level := slog.LevelInfo
	if o.textfile != "" {
		level = slog.LevelWarn // cron mails what is said
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	hup := make(chan os.Signal, 1)
	if o.textfile == "" {
		signal.Notify(hup, syscall.SIGHUP) // one that comes early must not end the process
		defer signal.Stop(hup)
	}
	policies, err := loadPolicies(o.policies)
	if err != nil {
		return uncheckedError{err}
	}
	if len(policies) == 0 {
		log.Warn("no policy was found: every tool is counted as \"other\"; give --policy")
	}
	m, err := metrics.New(metrics.Config{Dirs: dirs, Policies: policies, VerifyEvery: o.verifyEvery, Checkpoint: o.checkpoint, Log: log,
		InFlight: func(dir, requestID string) bool {
			busy, err := store.InFlight(dir, requestID)
			return err == nil && busy
		}})
	if err != nil {
		return uncheckedError{err}
	}
	if o.textfile != "" {
		if err := m.Textfile(ctx, o.textfile); err != nil {
			return uncheckedError{err}
		}
		return nil
	}

	l, err := metrics.Listen(o.listen)
	if err != nil {
		return uncheckedError{err}
	}
	log.Info("serving metrics", "address", "http://"+l.Addr().String()+"/metrics", "ledgers", len(dirs))
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { m.Run(ctx) })
	wg.Go(func() { reload(ctx, m, o.policies, hup, log) })
	if err := m.Serve(ctx, l); err != nil {
		return uncheckedError{err}
	}
	return nil
}

// reload reads the policies again at each SIGHUP.
func reload(ctx context.Context, m *metrics.Metrics, files []string, hup <-chan os.Signal, log *slog.Logger) {
	for {
		select {
		case <-hup:
		case <-ctx.Done():
			return
		}
		policies, err := loadPolicies(files)
		if err != nil {
			log.Error("the policies were not read again, and the names of before stay", "error", ledger.Escape(err.Error()))
			continue
		}
		m.SetPolicies(policies...)
		log.Info("the policies were read again", "policies", len(policies))
	}
}
