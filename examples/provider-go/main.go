// A provider of the rule "spread": a node costs as many as it has of the pod's
// peers, so pods go where no peer is.
package main

//go:generate python3 -m grpc_tools.protoc -I../../proto --go_out=ruleprovider --go_opt=paths=source_relative --go-grpc_out=ruleprovider --go-grpc_opt=paths=source_relative ruleprovider.proto

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	pb "tautline.io/examples/provider-go/ruleprovider"
)

type spread struct {
	pb.UnimplementedRuleProviderServer
}

func (spread) EndpointCost(_ context.Context, req *pb.EndpointCostRequest) (*pb.EndpointCostResponse, error) {
	on := map[string]int64{}
	for _, peer := range req.Peers {
		on[peer.Node]++
	}
	if len(req.Peers) == 0 { // The caller may not know peers; peerNodes it always knows.
		for _, node := range req.PeerNodes {
			on[node] = 1
		}
	}
	answer := &pb.EndpointCostResponse{}
	for _, node := range req.EligibleNodes { // All of them: a node not named cannot be used.
		answer.NodeAndCost = append(answer.NodeAndCost, &pb.NodeCost{Node: node, Cost: on[node]})
	}
	return answer, nil
}

func (spread) Evaluate(context.Context, *pb.EvaluateRequest) (*pb.EvaluateResponse, error) {
	return &pb.EvaluateResponse{
		Compliance: pb.EvaluateResponse_Compliant,
		Reason:     "spread is a preference, any placement keeps to it",
	}, nil
}

func main() {
	listen := flag.String("listen", cmp.Or(os.Getenv("LISTEN"), ":5309"), "address to listen on, also $LISTEN; port 0 takes a free one")
	flag.Parse()
	socket, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterRuleProviderServer(server, spread{})
	fmt.Println("listening on", socket.Addr())
	log.Fatal(server.Serve(socket))
}
