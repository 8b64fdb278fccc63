// Command noop is a scheduler extender that does nothing: every node passes with the
// same score. It is plain Go.
//
// "noop watch ADDRESS" is a process that watches pods instead, and "noop pace" a
// process that measures the machine's pace.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"

	extender "k8s.io/kube-scheduler/extender/v1"
)

var filtered, prioritized atomic.Int64

func main() {
	if len(os.Args) == 3 && os.Args[1] == "watch" {
		log.Fatal(watch(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == "pace" {
		log.Fatal(pace())
	}
	http.HandleFunc("POST /filter", func(w http.ResponseWriter, r *http.Request) {
		var args extender.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, extender.ExtenderFilterResult{NodeNames: args.NodeNames})
		filtered.Add(1)
	})
	http.HandleFunc("POST /prioritize", func(w http.ResponseWriter, r *http.Request) {
		var args extender.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, extender.HostPriorityList{})
		prioritized.Add(1)
	})
	http.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		for verb, count := range map[string]*atomic.Int64{"filter": &filtered, "prioritize": &prioritized} {
			if n := count.Load(); n > 0 {
				fmt.Fprintf(w, "tautline_extender_requests_total{verb=%q,status=\"200\"} %d\n", verb, n)
			}
		}
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:18888", nil))
}

func answer(w http.ResponseWriter, result any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(result); err != nil {
		log.Print(err)
	}
}
