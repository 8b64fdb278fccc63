package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// pause is the time that Tautline's watches wait between two reads.
const pause = 20 * time.Millisecond

// resting is a connection that waits so before each read.
type resting struct {
	net.Conn
	taken *bufio.Reader
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return resting{conn, bufio.NewReaderSize(conn, 1<<20)}, nil
}

func (r resting) Read(p []byte) (int, error) {
	if r.taken.Buffered() == 0 {
		time.Sleep(pause)
	}
	return r.taken.Read(p)
}

// watch reads the events of all pods over a connection of its own, as often as Tautline
// does, and drops them. /readyz of the address answers once the watch is open. It starts
// again when the API server ends the watch.
func watch(address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: tls, DialContext: dial})
	if err != nil {
		return err
	}
	events, err := begin(transport, config.Host)
	if err != nil {
		return err
	}
	http.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	go func() { log.Fatal(http.ListenAndServe(address, nil)) }()
	for {
		_, err := io.Copy(io.Discard, events)
		events.Close()
		if err != nil {
			return err
		}
		log.Print("the API server has ended the watch: it begins again")
		if events, err = begin(transport, config.Host); err != nil {
			return err
		}
	}
}

// begin requests events from now on, without existing pods.
func begin(transport http.RoundTripper, host string) (io.ReadCloser, error) {
	query := url.Values{
		"watch":                {"true"},
		"sendInitialEvents":    {"false"},
		"resourceVersionMatch": {"NotOlderThan"},
	}
	request, err := http.NewRequest(http.MethodGet, host+"/api/v1/pods?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("the watch is answered with %s", answer.Status)
	}
	return answer.Body, nil
}
