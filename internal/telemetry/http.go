// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of the HTTP server: a scrape takes milliseconds, and its client is not trusted to be quick.
const (
	maxScrapes     = 4
	scrapeTimeout  = 5 * time.Second
	healthTimeout  = 2 * time.Second
	requestTimeout = 10 * time.Second
	maxHeaderBytes = 16 << 10
)

// Health says how the daemon is.
type Health struct {
	// Ready returns nil when all guests can attach, else what is missing.
	Ready func() error
	// Healthy returns nil when the daemon makes progress.
	Healthy func(ctx context.Context) error
}

// Handler serves /metrics, /healthz and /readyz.
func (t *Telemetry) Handler(h Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		Registry:            t.registry,
		ErrorLog:            stdlog.New(httpErrors{t.http}, "", 0),
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		// Who scrapes is near, and this machine's processors have other things to do than to compress.
		DisableCompression: true,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		answer(w, h.Healthy(ctx))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.Ready()) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "pvrdmad: /metrics /healthz /readyz")
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Serve answers requests on l until ctx ends.
func (t *Telemetry) Serve(ctx context.Context, l net.Listener, h Health) error {
	s := &http.Server{
		Handler:           t.Handler(h),
		ErrorLog:          stdlog.New(httpErrors{t.http}, "", 0),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
	}
	return nil
}

// httpErrors is where net/http reports what clients do wrong: bounded like what guests do wrong.
type httpErrors struct{ log *boundedLog }

// Write logs one line of net/http.
func (h httpErrors) Write(p []byte) (int, error) {
	h.log.emit(hclog.Warn, "request failed", "error", quoted(errors.New(strings.TrimSpace(string(p)))))
	return len(p), nil
}
