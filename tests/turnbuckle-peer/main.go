// A peer that knows only the original wire contract, the fields below 16. The
// interoperability test runs it as the other side, once as provider and once as
// caller.
//
//	turnbuckle-peer serve [-listen 127.0.0.1:0]
//	turnbuckle-peer call ADDR
//	turnbuckle-peer names < TUPLES
package main

//go:generate python3 -m grpc_tools.protoc -I. --go_out=ruleprovider --go_opt=paths=source_relative --go-grpc_out=ruleprovider --go-grpc_opt=paths=source_relative ruleprovider.proto

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/rand"
	pb "tautline.io/tests/turnbuckle-peer/ruleprovider"
)

type provider struct {
	pb.UnimplementedRuleProviderServer
}

func (provider) EndpointCost(_ context.Context, req *pb.EndpointCostRequest) (*pb.EndpointCostResponse, error) {
	answer := &pb.EndpointCostResponse{}
	for i, node := range req.EligibleNodes {
		cost := int64(i + 1)
		if strings.Contains(node, "bad") {
			cost = -1
		}
		answer.NodeAndCost = append(answer.NodeAndCost, &pb.NodeCost{Node: node, Cost: cost})
	}
	return answer, nil
}

func (provider) Evaluate(_ context.Context, req *pb.EvaluateRequest) (*pb.EvaluateResponse, error) {
	if req.GetRule().GetName() == "latency" {
		return &pb.EvaluateResponse{Compliance: pb.EvaluateResponse_Violation, Reason: "peer says so"}, nil
	}
	return &pb.EvaluateResponse{Compliance: pb.EvaluateResponse_Compliant}, nil
}

// show writes a request to stderr as one line of JSON. Its unknown fields have
// no names here, so their size stands for them.
func show(ctx context.Context, req any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	message := req.(proto.Message)
	body, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	// Encoded once more because protojson puts in spaces at random.
	line, err := json.Marshal(struct {
		Method       string          `json:"method"`
		Request      json.RawMessage `json:"request"`
		UnknownBytes int             `json:"unknownBytes"`
	}{call.FullMethod, body, len(message.ProtoReflect().GetUnknown())})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%s\n", line)
	return next(ctx, req)
}

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on; port 0 takes a free one")
	flags.Parse(args)
	socket, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(show))
	pb.RegisterRuleProviderServer(server, provider{})
	fmt.Println("listening on", socket.Addr())
	return server.Serve(socket)
}

func call(addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := pb.NewRuleProviderClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	rule := &pb.PolicyRule{Name: "latency", Request: "5ms", Limit: "20ms"}
	cost, err := client.EndpointCost(ctx, &pb.EndpointCostRequest{
		// Of the source, Turnbuckle sends only this.
		Source:        &pb.Target{Kind: "Pod", Name: "web-0"},
		Rule:          rule,
		PeerNodes:     []string{"n1"},
		EligibleNodes: []string{"n1", "n2", "n3"},
	})
	if err != nil {
		return fmt.Errorf("EndpointCost: %w", err)
	}
	verdict, err := client.Evaluate(ctx, &pb.EvaluateRequest{
		Rule: rule,
		Targets: map[string]*pb.Target{
			"source":      {ApiVersion: "v1", Kind: "Pod", Namespace: "default", Name: "web-0"},
			"destination": {ApiVersion: "v1", Kind: "Pod", Namespace: "default", Name: "db-0"},
		},
	})
	if err != nil {
		return fmt.Errorf("Evaluate: %w", err)
	}

	costs := map[string]int64{}
	for _, each := range cost.NodeAndCost {
		costs[each.Node] = each.Cost
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"costs":      costs,
		"compliance": verdict.Compliance.String(),
		"reason":     verdict.Reason,
	})
}

// names prints the name that Turnbuckle gives to a binding, for each tuple in the input: the hash is of
// the references in the order of their targets, each with all five parts.
func names(input io.Reader) error {
	tuples := json.NewDecoder(input)
	for {
		var tuple struct {
			Offer string
			// Cluster, namespace, API version, kind and name, by target.
			Targets map[string][5]string
		}
		if err := tuples.Decode(&tuple); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		hash := fnv.New32a()
		for _, target := range slices.Sorted(maps.Keys(tuple.Targets)) {
			parts := tuple.Targets[target]
			io.WriteString(hash, strings.Join(parts[:], ":"))
		}
		fmt.Println(tuple.Offer + "-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32())))
	}
}

func main() {
	err := errors.New("usage: turnbuckle-peer serve [-listen ADDR] | call ADDR | names < TUPLES")
	switch args := os.Args[1:]; {
	case len(args) > 0 && args[0] == "serve":
		err = serve(args[1:])
	case len(args) == 2 && args[0] == "call":
		err = call(args[1])
	case len(args) == 1 && args[0] == "names":
		err = names(os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
