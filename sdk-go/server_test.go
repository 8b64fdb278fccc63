package tautline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"tautline.io/sdk-go/allocator"
	"tautline.io/sdk-go/ruleprovider"
)

const deadline = 30 * time.Second

// The server of the package's documentation.
func spread(_ context.Context, request *CostRequest) (Costs, error) {
	var costs Costs
	peers := PeerCounts(request)
	for _, node := range request.EligibleNodes {
		costs.Usable(node, peers[node], "")
	}
	return costs, nil
}

// start serves a provider on a free port until the end of the test; stop ends it earlier.
func start(t *testing.T, provider Provider) (server *Server, stop func() error) {
	t.Helper()
	server, err := Listen(provider, Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	stop = func() error {
		cancel()
		select {
		case err := <-served:
			served <- nil
			return err
		case <-time.After(deadline):
			return errors.New("the server does not stop")
		}
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return server, stop
}

func dial(t *testing.T, address net.Addr) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func client(t *testing.T, server *Server) ruleprovider.RuleProviderClient {
	t.Helper()
	awaitHealth(t, server, healthpb.HealthCheckResponse_SERVING)
	return ruleprovider.NewRuleProviderClient(dial(t, server.Addr()))
}

func awaitHealth(t *testing.T, server *Server, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	conn := healthpb.NewHealthClient(dial(t, server.Addr()))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for _, service := range []string{"", ruleprovider.RuleProvider_ServiceDesc.ServiceName} {
		watch, err := conn.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		for {
			response, err := watch.Recv()
			if err != nil {
				t.Fatalf("health of %q is not %v: %v", service, want, err)
			}
			if response.Status == want {
				break
			}
		}
	}
}

func TestCostsHasEveryEligibleNode(t *testing.T) {
	server, _ := start(t, Provider{Costs: spread})
	request := &CostRequest{
		EligibleNodes: []string{"a", "b", "c"},
		Peers:         []*ruleprovider.Peer{{Node: "b"}, {Node: "b"}, {Node: ""}, {Node: "other"}},
	}
	response, err := client(t, server).EndpointCost(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var costs []int64
	for _, line := range response.NodeAndCost {
		costs = append(costs, line.Cost)
	}
	if !slices.Equal(costs, []int64{0, 2, 0}) {
		t.Errorf("costs %v", costs)
	}
	evaluated, err := client(t, server).Evaluate(t.Context(), &EvaluateRequest{})
	if err != nil || evaluated.Compliance != Compliant {
		t.Errorf("%v, %v", evaluated, err)
	}
}

func TestErrorsBecomeStatuses(t *testing.T) {
	fail := map[string]func() error{
		"bad":    func() error { return BadRule("limit %q: write a number", "few") },
		"empty":  func() error { return NotReady("no table") },
		"status": func() error { return status.Error(codes.ResourceExhausted, "full") },
		"other":  func() error { return errors.New("broken") },
		"panic":  func() error { panic("on purpose") },
		// Not that of the caller.
		"late": func() error { return fmt.Errorf("redis: %w", context.DeadlineExceeded) },
		"long": func() error { return errors.New(strings.Repeat("x", 100_000)) },
	}
	server, _ := start(t, Provider{Costs: func(_ context.Context, request *CostRequest) (Costs, error) {
		return Costs{}, fail[request.Rule.Name]()
	}})
	for rule, want := range map[string]string{
		"bad":    `InvalidArgument: limit "few": write a number`,
		"empty":  "FailedPrecondition: not ready: no table",
		"status": "ResourceExhausted: full",
		"other":  "Internal: broken",
		"panic":  "Internal: panic: on purpose",
		"late":   "Internal: redis: context deadline exceeded",
		"long":   "Internal: " + strings.Repeat("x", maxText) + " ...",
	} {
		_, err := client(t, server).EndpointCost(t.Context(), &CostRequest{Rule: &ruleprovider.PolicyRule{Name: rule}})
		if got := status.Code(err).String() + ": " + status.Convert(err).Message(); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}

func TestCallsWaitForLoad(t *testing.T) {
	loaded := make(chan struct{})
	server, _ := start(t, Provider{Costs: spread, Load: func(context.Context) error { <-loaded; return nil }})
	awaitHealth(t, server, healthpb.HealthCheckResponse_NOT_SERVING)
	early := ruleprovider.NewRuleProviderClient(dial(t, server.Addr()))
	if _, err := early.EndpointCost(t.Context(), &CostRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("before the load: %v", err)
	}
	close(loaded)
	if _, err := client(t, server).EndpointCost(t.Context(), &CostRequest{}); err != nil {
		t.Error(err)
	}
}

func TestFailedLoadEndsTheServer(t *testing.T) {
	server, err := Listen(Provider{Costs: spread, Load: func(context.Context) error { return errors.New("no file") }}, Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(t.Context()); err == nil || err.Error() != "load: no file" {
		t.Error(err)
	}
}

func TestStopFinishesCallsInProgress(t *testing.T) {
	called, proceed := make(chan struct{}), make(chan struct{})
	server, stop := start(t, Provider{Costs: func(ctx context.Context, request *CostRequest) (Costs, error) {
		close(called)
		<-proceed
		return spread(ctx, request)
	}})
	provider := client(t, server)
	answered := make(chan error, 1)
	go func() {
		_, err := provider.EndpointCost(context.Background(), &CostRequest{})
		answered <- err
	}()
	<-called
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	awaitRefused(t, server.Addr())
	close(proceed)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func awaitRefused(t *testing.T, address net.Addr) {
	t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			return
		}
		conn.Close()
	}
	t.Fatal("the stopping server accepts connections")
}

type oneDevice struct {
	allocator.UnimplementedAllocatorServer
}

func (oneDevice) Reserve(context.Context, *allocator.ReserveRequest) (*allocator.ReserveResponse, error) {
	return &allocator.ReserveResponse{Id: "device-0"}, nil
}

func TestRegisterAddsAnAllocator(t *testing.T) {
	server, _ := start(t, Provider{Costs: spread, Register: func(registrar grpc.ServiceRegistrar) {
		allocator.RegisterAllocatorServer(registrar, oneDevice{})
	}})
	client(t, server) // is healthy
	reserved, err := allocator.NewAllocatorClient(dial(t, server.Addr())).Reserve(t.Context(), &allocator.ReserveRequest{})
	if err != nil || reserved.Id != "device-0" {
		t.Errorf("%v, %v", reserved, err)
	}
}

func TestListenNamesTheFix(t *testing.T) {
	for want, listen := range map[string]func() (*Server, error){
		"set Provider.Costs": func() (*Server, error) { return Listen(Provider{}, Options{}) },
		"cannot listen on nowhere.invalid:1": func() (*Server, error) {
			return Listen(Provider{Costs: spread}, Options{Listen: "nowhere.invalid:1"})
		},
		"\"nowhere\": write HOST:PORT":    func() (*Server, error) { return Listen(Provider{Costs: spread}, Options{Listen: "nowhere"}) },
		"\"127.0.0.1:\": write HOST:PORT": func() (*Server, error) { return Listen(Provider{Costs: spread}, Options{Listen: "127.0.0.1:"}) },
		"TLSKey (-tls-key) is empty":      func() (*Server, error) { return Listen(Provider{Costs: spread}, Options{TLSCert: "a"}) },
		"TLSCert (-tls-cert) is empty":    func() (*Server, error) { return Listen(Provider{Costs: spread}, Options{TLSClientCA: "a"}) },
		"missing.crt: no such file or dire": func() (*Server, error) {
			return Listen(Provider{Costs: spread}, Options{TLSCert: "missing.crt", TLSKey: "k"})
		},
	} {
		if _, err := listen(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestFlagsDefaultToTheEnvironment(t *testing.T) {
	t.Setenv("LISTEN", "127.0.0.1:1")
	t.Setenv("TLS_CERT", "tls.crt")
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	options := Flags(flags)
	if err := flags.Parse([]string{"-tls-key", "tls.key", "-listen", ":0"}); err != nil {
		t.Fatal(err)
	}
	if want := (Options{Listen: ":0", TLSCert: "tls.crt", TLSKey: "tls.key"}); *options != want {
		t.Errorf("%+v", *options)
	}
}

func TestArgumentsAreRefused(t *testing.T) {
	if err := noArguments([]string{"127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "-listen") {
		t.Error(err)
	}
	if err := noArguments(nil); err != nil {
		t.Error(err)
	}
}

// $TAUTLINE is the program, as in CI.
func TestConformance(t *testing.T) {
	program := os.Getenv("TAUTLINE")
	if program == "" {
		t.Skip("skipped: $TAUTLINE is not set; name the program to run tautline conformance")
	}
	server, _ := start(t, Provider{Costs: spread, Changes: NewChanges()})
	client(t, server) // is ready
	out, err := exec.CommandContext(t.Context(), program, "conformance", server.Addr().String(), "--rule", "spread", "--deadline", "30s").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
