package tautline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"tautline.io/sdk-go/ruleprovider"
)

const (
	// Fits 100,000 node names of 63 bytes.
	maxRequestBytes = 16 << 20
	// How long calls in progress may take after the stop.
	grace = 20 * time.Second
)

// Server is a provider's server with a bound port: connections wait until Serve.
type Server struct {
	listener net.Listener
	grpc     *grpc.Server
	health   *health.Server
	load     func(context.Context) error
	ready    *atomic.Bool
	// It ends the streams of WatchCosts.
	endStreams context.CancelFunc
}

// Listen binds the port of a server.
func Listen(provider Provider, options Options) (*Server, error) {
	if provider.Costs == nil {
		return nil, errors.New("provider has no function Costs: set Provider.Costs")
	}
	tls, err := options.credentials()
	if err != nil {
		return nil, err
	}
	if _, port, err := net.SplitHostPort(options.listen()); err != nil || port == "" {
		return nil, fmt.Errorf("listen is %q: write HOST:PORT, such as 127.0.0.1:5309, or :5309", options.listen())
	}
	listener, err := net.Listen("tcp", options.listen())
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", options.listen(), err)
	}
	ready := &atomic.Bool{}
	stopping, endStreams := context.WithCancel(context.Background())
	server := &Server{
		listener: listener,
		grpc: grpc.NewServer(
			grpc.Creds(tls),
			grpc.UnaryInterceptor(gate(ready)),
			grpc.StreamInterceptor(streamGate(ready)),
			grpc.MaxRecvMsgSize(maxRequestBytes),
			grpc.ConnectionTimeout(10*time.Second),
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second}),
			// Tautline pings idle connections every 10 s.
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		),
		health:     health.NewServer(),
		load:       provider.Load,
		ready:      ready,
		endStreams: endStreams,
	}
	ruleprovider.RegisterRuleProviderServer(server.grpc, service{
		provider: provider,
		streams:  make(chan struct{}, maxStreams),
		stopping: stopping,
	})
	if provider.Register != nil {
		provider.Register(server.grpc)
	}
	server.report(healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(server.grpc, server.health)
	reflection.Register(server.grpc)
	return server, nil
}

// Addr is the address of the port.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve loads the provider and serves it until ctx is done, then finishes the calls in progress.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(s.listener) }()
	loaded := make(chan error, 1)
	go func() { loaded <- s.prepare(ctx) }()
	for {
		select {
		case err := <-served:
			return err
		case err := <-loaded:
			if err != nil && ctx.Err() == nil {
				s.grpc.Stop()
				return fmt.Errorf("load: %w", err)
			}
			loaded = nil
		case <-ctx.Done():
			return s.stop()
		}
	}
}

func (s *Server) prepare(ctx context.Context) error {
	if s.load != nil {
		if err := s.load(ctx); err != nil {
			return err
		}
	}
	s.ready.Store(true)
	s.report(healthpb.HealthCheckResponse_SERVING)
	return nil
}

func (s *Server) stop() error {
	s.health.Shutdown()
	s.endStreams()
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(grace):
		slog.Warn("calls in progress are cut off", "after", grace)
		s.grpc.Stop()
	}
	return nil
}

// report sets the health of every service, and of the server as a whole.
func (s *Server) report(status healthpb.HealthCheckResponse_ServingStatus) {
	s.health.SetServingStatus("", status)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, status)
	}
}

// Serve serves the provider until ctx is done, then finishes the calls in progress.
func Serve(ctx context.Context, provider Provider, options Options) error {
	server, err := Listen(provider, options)
	if err != nil {
		return err
	}
	slog.Info("rule provider listening", "address", server.Addr().String())
	return server.Serve(ctx)
}
