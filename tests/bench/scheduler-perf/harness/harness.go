package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// Result has the figures of one run of one case.
type Result struct {
	Case  string `json:"case"`
	Nodes int    `json:"nodes"`
	Pods  int    `json:"pods"`
	// PodsPerSecond is the throughput from the first binding to the last.
	PodsPerSecond float64 `json:"podsPerSecond"`
	// SamplesPerSecond is scheduler_perf's average of its one-second samples.
	SamplesPerSecond float64 `json:"samplesPerSecond"`
	// MicrosPerPod is the processor time of each process per measured pod.
	MicrosPerPod map[string]float64 `json:"cpuMicrosPerPod"`
	// PaceMicros is the mean processor time of the pace process's constant work during
	// the run.
	PaceMicros float64 `json:"paceMicros"`
	// FilterMicros is the mean time in which Tautline answered filter, as it measures it.
	FilterMicros float64 `json:"filterMicros,omitempty"`
	// Requests to the extender for all pods, by verb.
	Requests map[string]int `json:"requests,omitempty"`
	// Outcomes of the extender for all pods.
	Outcomes map[string]int `json:"outcomes,omitempty"`
	// Binds by the extender, by outcome.
	Binds map[string]int `json:"binds,omitempty"`
	// RejectedNodes by reason.
	RejectedNodes map[string]int `json:"rejectedNodes,omitempty"`
	// ProviderCalls of the extender, by rule and outcome.
	ProviderCalls map[string]int `json:"providerCalls,omitempty"`
}

// Harness runs the servers of a case during one run of scheduler_perf.
type Harness struct {
	// Root is the repository.
	Root string
	// Noop is the extender in Go.
	Noop string
	// Out is the file for the result; empty for none.
	Out       string
	stopwatch Stopwatch
	result    Result
}

// Plugins are added to the scheduler's own.
func (h *Harness) Plugins() frameworkruntime.Registry {
	return frameworkruntime.Registry{stopwatchName: h.stopwatch.New}
}

// NodesMade is called after the nodes are created and before any pod is. It starts the
// case's servers, which are checked and stopped at the end of the run.
func (h *Harness) NodesMade(tCtx ktesting.TContext, _ *scheduler.Scheduler, w *perf.Workload, nodes *v1.NodeList) error {
	c, known := caseOf(tCtx.Name())
	if !known {
		return fmt.Errorf("no case is known for %s", tCtx.Name())
	}
	pods, err := w.GetParam("pods")
	if err != nil {
		return err
	}
	warmed, err := w.GetParam("warmPods")
	if err != nil {
		return err
	}
	if c.Claims {
		if err := publish(tCtx, nodes); err != nil {
			return err
		}
	}
	if c.Tautline {
		if err := install(tCtx, h.Root, nodes, c); err != nil {
			return err
		}
	}
	running := &servers{dir: tCtx.TempDir()}
	kubeconfig := filepath.Join(running.dir, "kubeconfig")
	if err := writeKubeconfig(tCtx.RESTConfig(), kubeconfig); err != nil {
		return err
	}
	tCtx.CleanupCtx(func(tCtx ktesting.TContext) {
		if !tCtx.Failed() {
			if err := h.check(tCtx, running, c, nodes, pods, pods+warmed); err != nil {
				tCtx.Errorf("%s: %v", c.Name, err)
			}
		}
		if err := running.stop(); err != nil {
			tCtx.Errorf("%s: %v", c.Name, err)
		}
	})
	if err := h.serve(tCtx, running, c, kubeconfig); err != nil {
		return err
	}
	h.stopwatch.start(pods, func() usage { return usageOf(running.pids()) })
	return nil
}

func (h *Harness) serve(tCtx ktesting.TContext, running *servers, c Case, kubeconfig string) error {
	bin := built(h.Root, h.Noop)
	if err := running.start(paceName, []string{bin.goNoop, "pace"}, kubeconfig); err != nil {
		return err
	}
	if c.providers != nil {
		for _, p := range c.providers(bin) {
			if err := running.start(p.name, p.args, kubeconfig); err != nil {
				return err
			}
			if err := running.ready(tCtx, p.admin+"/readyz"); err != nil {
				return err
			}
		}
	}
	if c.server == nil {
		return nil
	}
	if err := running.start("extender", c.server(bin), kubeconfig); err != nil {
		return err
	}
	return running.ready(tCtx, c.Counts+"/readyz")
}

// check verifies that the case ran as declared, and records its figures.
func (h *Harness) check(tCtx ktesting.TContext, running *servers, c Case, nodes *v1.NodeList, pods, all int) error {
	took, err := h.stopwatch.read()
	if err != nil {
		return err
	}
	pace, err := running.pace(took.first, took.last)
	if err != nil {
		return err
	}
	h.result = Result{
		Case: c.Name, Nodes: len(nodes.Items), Pods: pods,
		PodsPerSecond: took.podsPerSecond, MicrosPerPod: took.microsPerPod, PaceMicros: pace,
	}
	if c.Counts != "" {
		page, err := get(tCtx, c.Counts+"/metrics")
		if err != nil {
			return err
		}
		if err := h.result.count(page, c, all); err != nil {
			return fmt.Errorf("%w\n%s", err, ours(page))
		}
	}
	if c.Claims {
		if err := allocatedOnce(tCtx, pods); err != nil {
			return err
		}
	}
	if c.Governed {
		return placedNear(tCtx, nodes, pods)
	}
	return nil
}

// Write writes the result, with scheduler_perf's own figure, which it reads from a
// file in the given folder.
func (h *Harness) Write(data string) error {
	if h.Out == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(data, "*.json"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%d files of scheduler_perf in %s, not one", len(files), data)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var items perf.DataItems
	if err := json.Unmarshal(text, &items); err != nil {
		return err
	}
	for _, item := range items.DataItems {
		if item.Labels["Metric"] == "SchedulingThroughput" && strings.HasSuffix(item.Labels["Name"], "/measured") {
			h.result.SamplesPerSecond = item.Data["Average"]
		}
	}
	out, err := json.MarshalIndent(h.result, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(h.Out, append(out, '\n'), 0o644)
}

// writeKubeconfig gives other processes this one's access to the API server.
func writeKubeconfig(config *rest.Config, path string) error {
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["perf"] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
		TLSServerName:            config.ServerName,
	}
	file.AuthInfos["perf"] = &clientcmdapi.AuthInfo{
		Token:                 config.BearerToken,
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
	}
	file.Contexts["perf"] = &clientcmdapi.Context{Cluster: "perf", AuthInfo: "perf"}
	file.CurrentContext = "perf"
	return clientcmd.WriteToFile(*file, path)
}
