package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// watch reads all events of pods, as they come over a connection of its own, and
// forgets them. It is ready, at /readyz of the address, once they come.
func watch(address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: tls})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodGet, config.Host+"/api/v1/pods?watch=true", nil)
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
