package main

import (
	"bufio"
	"context"
	"errors"
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

// pause is for how long Tautline's watches take nothing once they have taken what
// there was.
const pause = 20 * time.Millisecond

// resting is a connection that rests so before it waits for more.
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

// watch reads the events of the pods that have a node, over a connection of its own and
// as often as Tautline does, and forgets them. It is ready, at /readyz of the address,
// once they come.
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
	request, err := http.NewRequest(http.MethodGet, config.Host+"/api/v1/pods?watch=true&fieldSelector="+url.QueryEscape("spec.nodeName!="), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the watch is answered %s", answer.Status)
	}
	http.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	go func() { log.Fatal(http.ListenAndServe(address, nil)) }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	return errors.New("the watch has ended")
}
