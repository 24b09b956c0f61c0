package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/auditledger/auditledger/ledger"
)

// Listen listens on addr, HOST:PORT. Where it names no host, that is loopback:
// what listens on all interfaces was told so, by 0.0.0.0 or [::]. The error of a
// taken port is syscall.EADDRINUSE, for errors.Is.
func Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: want HOST:PORT, such as 127.0.0.1:9464", ledger.Escape(addr))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	addr = net.JoinHostPort(host, port)
	l, err := net.Listen("tcp", addr)
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // the rest of it is said here
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: %w: another exporter or server may have it; end that one, or give each a port of its own", addr, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %s", ledger.Escape(addr), ledger.Escape(err.Error()))
	}
	return l, nil
}

// Handler answers GET and HEAD of /metrics, of /healthz, which is well as long as
// it answers, and of /readyz, which is well once the totals of all ledgers are
// shown.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelError), MaxRequestsInFlight: 10}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		hidden := m.hidden()
		if len(hidden) == 0 {
			answer(w, http.StatusOK, "ok")
			return
		}
		for i, label := range hidden {
			hidden[i] = "not read to its end yet: " + ledger.Escape(label)
		}
		answer(w, http.StatusServiceUnavailable, strings.Join(hidden, "\n"))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "Audit ledgers, for Prometheus.\n\n/metrics  what they hold\n/healthz  the process answers\n/readyz   the totals of all ledgers are known")
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// Serve answers on l until ctx ends, and then lets the requests that it has end.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler:           m.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if s.Shutdown(wait) != nil {
			s.Close()
		}
	})
	err := s.Serve(l)
	if stop() {
		return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
	}
	<-ended
	return nil
}
