// Command gated-mcp is an MCP server over stdio that decides every call by a
// policy, gives each mutation one effect per request id, and writes each
// decision to a chained ledger.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/internal/durable"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/server"
	"github.com/auditledger/auditledger/server/effects"
	"github.com/auditledger/auditledger/server/gate"
	"github.com/auditledger/auditledger/server/metrics"
	"github.com/auditledger/auditledger/server/policy"
	"github.com/auditledger/auditledger/server/tracing"
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "gated-mcp: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	ledger, policy string
	init           bool
	network        bool
	maxLine        int
	sealAt         int64
	metrics        string
	optional       bool
	debug          bool
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "gated-mcp",
		Short: "A gated MCP server over stdio, with an audit ledger of every decision",
		Long: `gated-mcp serves write_note, read_ledger and rm_rf over stdio. Each call is
decided by the policy before anything is touched, each mutation has one effect
per request_id, and each decision is a record of the ledger.

SIGHUP loads the policy again; a bad file keeps the one in force. SIGTERM and
the end of input end the server after the calls in flight were answered and
recorded.

OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_TRACES_EXPORTER=otlp, sends a span of each
call and its parts to an OpenTelemetry collector, over HTTP; the other OTEL_*
variables are as for every program. Calls do not wait for it.

Environment:
  LEDGER_DIR    the ledger directory, where --ledger is left out (default .ledger)
  POLICY_PATH   the policy file, where --policy is left out (default policy.json)
  CRASH_MARKER  for tests: where set, each write_note creates this file and waits
                30 s between the sync of a note and its getting a name

Exit status: 0 after the end of input or SIGTERM, 1 where it could not start or
the session failed.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.init {
				return initPolicy(o.policy)
			}
			return run(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.ledger, "ledger", fromEnv("LEDGER_DIR", ".ledger"), "ledger directory")
	f.StringVar(&o.policy, "policy", fromEnv("POLICY_PATH", "policy.json"), "policy file")
	f.BoolVar(&o.init, "init", false, "write a starter policy to the policy file, which must not exist, and end")
	f.BoolVar(&o.network, "allow-network-fs", false, "open a ledger on a network file system, where two hosts may fork it")
	f.IntVar(&o.maxLine, "max-message", 16<<20, "longest message that is read, in bytes")
	f.Int64Var(&o.sealAt, "seal-at", store.DefaultSealAt, "size in bytes from which on a segment of the ledger is sealed")
	f.StringVar(&o.metrics, "metrics", "", "serve metrics for Prometheus at HOST:PORT; without HOST on loopback. Where it is taken, nothing is served")
	f.BoolVar(&o.optional, "metrics-optional", false, "where the address of --metrics is taken, serve tools without metrics")
	f.BoolVar(&o.debug, "debug", false, "more log lines on stderr; arguments are never among them")
	return c
}

func fromEnv(name, or string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return or
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func initPolicy(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already, and is left as it is", path)
	}
	if err != nil {
		return err
	}
	if _, err := f.Write(policy.Starter()); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// lastSpans is how long the end of the server waits for a collector.
const lastSpans = 2 * time.Second

func run(ctx context.Context, o options) error {
	// Both would end the process: a hangup while it starts, and a write to a
	// client that has gone, before the calls in flight are recorded.
	// A client that closes its end is seen as a failed write, after which the
	// calls in flight are still finished and recorded.
	signal.Ignore(syscall.SIGPIPE)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	signal.Ignore(syscall.SIGPIPE)

	level := slog.LevelInfo
	if o.debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))

	p, err := policy.Load(o.policy)
	if err != nil {
		return err
	}
	var tracer gate.Tracer
	if traces, err := tracing.New(ctx, tracing.Config{Getenv: os.Getenv, Service: "gated-mcp", Version: version(), Log: log}); err != nil {
		return err
	} else if traces != nil {
		tracer = traces
		defer func() {
			last, cancel := context.WithTimeout(context.Background(), lastSpans)
			defer cancel()
			if err := traces.Close(last); err != nil {
				log.Warn("the last spans were not sent", "error", err)
			}
		}()
	}
	listener, err := listen(o, log)
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, o.ledger, store.Options{Log: log, AllowNetworkFS: o.network, SealAt: o.sealAt})
	if err != nil {
		return err
	}
	defer st.Close()
	notes, err := effects.Open(durable.OS, filepath.Join(o.ledger, ledger.NotesName), crashPoint(os.Getenv("CRASH_MARKER")))
	if err != nil {
		return err
	}
	c := server.Config{Name: "gated-mcp", Version: version(), Ledger: st, Policy: p, Log: log, MaxLine: o.maxLine, Tracer: tracer,
		Instructions: "Each write takes a request_id; a retry with the same one is safe. Calls that the policy does not allow are refused and recorded."}
	var shown *metrics.Metrics // nil where nobody asked for them
	if listener != nil {
		shown, err = metrics.New(metrics.Config{Dirs: []string{o.ledger}, Policies: []*policy.Policy{p}, Server: true, Log: log,
			InFlight: func(dir, requestID string) bool {
				held, err := store.InFlight(dir, requestID)
				return err == nil && held
			}})
		if err != nil {
			return err
		}
		c.Called, c.Appended = shown.Called, shown.Appended
	}
	s, err := server.New(c)
	if err != nil {
		return err
	}
	if err := server.AddNoteTools(s, notes); err != nil {
		return err
	}
	for _, warning := range p.Check(s.Tools()) {
		log.Warn("policy: " + warning)
	}
	doubt, err := s.Recover(ctx)
	if err != nil {
		return fmt.Errorf("close what an earlier process left open: %w", err)
	}
	for _, in := range doubt {
		log.Warn("a call is in doubt: see ledgerctl doubt", "tool", ledger.Escape(in.Name), "request_id", ledger.Escape(in.RequestID), "seq", in.Seq)
	}

	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		for {
			select {
			case <-hup:
				reload(ctx, s, shown, o.policy, log)
			case <-ctx.Done():
				return
			}
		}
	}()
	if shown != nil {
		log.Info("metrics are served", "address", listener.Addr().String())
		go shown.Run(ctx)
		go func() {
			if err := shown.Serve(ctx, listener); err != nil {
				log.Error("metrics are not served any more", "error", err)
			}
		}()
	}
	return s.ServeStdio(ctx, os.Stdin, os.Stdout)
}

// listen takes the address of metrics, before anything else is touched: nil
// where none is asked for, or where it is taken and that is no matter.
func listen(o options, log *slog.Logger) (net.Listener, error) {
	if o.metrics == "" {
		return nil, nil
	}
	l, err := metrics.Listen(o.metrics)
	if err != nil && o.optional && errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("tools are served without metrics", "error", err)
		return nil, nil
	}
	return l, err
}

// reload puts the policy file in force, or keeps the one before; either way it
// is a record.
func reload(ctx context.Context, s *server.Server, shown *metrics.Metrics, path string, log *slog.Logger) {
	p, err := policy.Load(path)
	if err != nil {
		log.Error("the policy was not loaded again, the one before stays in force", "error", err)
		s.Gate().KeepPolicy(ctx, refusedContent(path))
		return
	}
	for _, warning := range p.Check(s.Tools()) {
		log.Warn("policy: " + warning)
	}
	if shown != nil {
		shown.SetPolicies(p)
	}
	if err := s.Gate().SetPolicy(ctx, p); err == nil {
		log.Info("policy loaded again", "sha256", p.Digest().String())
	}
}

// refusedContent is what a policy file holds that was refused, nil where it is
// nothing that could be a policy: reading a pipe might never end.
func refusedContent(path string) []byte {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > policy.MaxSize {
		return nil
	}
	content, _ := os.ReadFile(path)
	return content
}

// crashPoint is where a test kills the server: at the moment when a note is
// durable and has no name yet.
func crashPoint(marker string) func() {
	if marker == "" {
		return nil
	}
	return func() {
		if f, err := os.OpenFile(marker, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			f.Close()
		}
		time.Sleep(30 * time.Second)
	}
}
