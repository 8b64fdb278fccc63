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

// Result is what one run of one case says.
type Result struct {
	Case  string `json:"case"`
	Nodes int    `json:"nodes"`
	Pods  int    `json:"pods"`
	// PodsPerSecond is from the first binding to the last.
	PodsPerSecond float64 `json:"podsPerSecond"`
	// SamplesPerSecond is scheduler_perf's own average of its samples.
	SamplesPerSecond float64 `json:"samplesPerSecond"`
	// MicrosPerPod is the processor time of each process, of the measured pods.
	MicrosPerPod map[string]float64 `json:"cpuMicrosPerPod"`
	// PaceMicros is the processor time that always the same work took meanwhile: the
	// mean of what the pace's process wrote.
	PaceMicros float64 `json:"paceMicros"`
	// Requests are the extender's, by verb, of all pods.
	Requests map[string]int `json:"requests,omitempty"`
	// Outcomes are what the extender made of all pods.
	Outcomes map[string]int `json:"outcomes,omitempty"`
	// Binds are bindings by the extender, by outcome.
	Binds map[string]int `json:"binds,omitempty"`
	// RejectedNodes are nodes kept from pods, by reason.
	RejectedNodes map[string]int `json:"rejectedNodes,omitempty"`
	// ProviderCalls are the extender's questions, by rule and outcome.
	ProviderCalls map[string]int `json:"providerCalls,omitempty"`
}

// Harness goes with one run of scheduler_perf.
type Harness struct {
	// Root is the repository.
	Root string
	// Noop is the extender in Go.
	Noop string
	// Out is where the result goes; empty: nowhere.
	Out       string
	stopwatch Stopwatch
	result    Result
}

// Plugins are what the scheduler needs to know beside its own.
func (h *Harness) Plugins() frameworkruntime.Registry {
	return frameworkruntime.Registry{stopwatchName: h.stopwatch.New}
}

// NodesMade is called once the nodes are there, and before any pod: it starts
// everything that the case needs. What it started is judged and ended with the run.
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
	if c.Tautline {
		if err := install(tCtx, h.Root, nodes, c.Governed); err != nil {
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
			if err := h.judge(tCtx, running, c, nodes, pods, pods+warmed); err != nil {
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

// judge sees that the case was what it says, and keeps its figures.
func (h *Harness) judge(tCtx ktesting.TContext, running *servers, c Case, nodes *v1.NodeList, pods, all int) error {
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
	if c.Governed {
		return placedNear(tCtx, nodes, pods)
	}
	return nil
}

// Write keeps the result, with scheduler_perf's own figure of it, which is in a
// file of the given folder.
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

// writeKubeconfig lets other processes in as this one is.
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
