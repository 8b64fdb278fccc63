package harness

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
)

var (
	sample = regexp.MustCompile(`^(\w+)\{(.*)\} (\d+)$`)
	label  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// count reads the extender's metrics and checks them against the case and its number
// of pods.
func (r *Result) count(page string, c Case, pods int) error {
	r.Requests, r.Outcomes, r.Binds = map[string]int{}, map[string]int{}, map[string]int{}
	r.RejectedNodes, r.ProviderCalls = map[string]int{}, map[string]int{}
	var seconds, answers float64
	for line := range strings.SplitSeq(page, "\n") {
		for name, value := range map[string]*float64{"sum": &seconds, "count": &answers} {
			text, found := strings.CutPrefix(line, "tautline_extender_request_seconds_"+name+`{verb="filter"} `)
			if number, err := strconv.ParseFloat(text, 64); found && err == nil {
				*value = number
			}
		}
		parts := sample.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		labels := map[string]string{}
		for _, pair := range label.FindAllStringSubmatch(parts[2], -1) {
			labels[pair[1]] = pair[2]
		}
		value, err := strconv.Atoi(parts[3])
		if err != nil {
			return err
		}
		switch parts[1] {
		case "tautline_extender_requests_total":
			r.Requests[labels["verb"]+" "+labels["status"]] += value
		case "tautline_extender_pods_total":
			r.Outcomes[labels["outcome"]] += value
		case "tautline_extender_binds_total":
			r.Binds[labels["outcome"]] += value
		case "tautline_extender_rejected_nodes_total":
			r.RejectedNodes[labels["reason"]] += value
		case "tautline_provider_calls_total":
			r.ProviderCalls[labels["rule"]+" "+labels["outcome"]] += value
		}
	}
	if answers > 0 {
		r.FilterMicros = seconds / answers * 1e6
	}
	return r.fits(c, pods)
}

func (r *Result) fits(c Case, pods int) error {
	filtered := r.Requests["filter 200"]
	switch {
	case c.Asked && filtered < pods:
		return fmt.Errorf("%d filter requests were answered, for %d pods", filtered, pods)
	case c.Asked && !c.Decides && r.Requests["prioritize 200"] < pods:
		return fmt.Errorf("%d prioritize requests were answered, for %d pods", r.Requests["prioritize 200"], pods)
	case !c.Asked && len(r.Requests) > 0:
		return fmt.Errorf("the extender was called for pods outside its managed resources: %v", r.Requests)
	case c.Binds && r.Binds["bound"] != pods:
		return fmt.Errorf("%d of %d pods were bound: %v", r.Binds["bound"], pods, r.Binds)
	case c.Binds:
		// Refused bindings are tried again: their cost is in the throughput.
		return nil
	}
	for request, count := range r.Requests {
		if !strings.HasSuffix(request, " 200") {
			return fmt.Errorf("%d requests: %s", count, request)
		}
	}
	if !c.Tautline {
		return nil
	}
	if !c.Governed {
		if c.Asked && r.Outcomes["ungoverned"] < pods || len(r.ProviderCalls) > 0 {
			return fmt.Errorf("pods were governed: %v, %v", r.Outcomes, r.ProviderCalls)
		}
		return nil
	}
	// Each attempt has an outcome; rejected pods are tried again.
	if r.Outcomes["placeable"] < pods || r.Outcomes["ungoverned"] > 0 {
		return fmt.Errorf("not all pods were governed: %v", r.Outcomes)
	}
	if r.RejectedNodes["latency/OverLimit"] == 0 {
		return fmt.Errorf("no node was too far: %v", r.RejectedNodes)
	}
	for _, policy := range c.policies() {
		if rule := rule(policy); r.ProviderCalls[rule+" OK"] == 0 {
			return fmt.Errorf("no provider answered for the rule %s: %v", rule, r.ProviderCalls)
		}
	}
	for call, count := range r.ProviderCalls {
		if !strings.HasSuffix(call, " OK") {
			return fmt.Errorf("%d questions to providers: %s", count, call)
		}
	}
	return nil
}

// placedNear checks that all measured pods are within the policy's limits.
func placedNear(tCtx ktesting.TContext, nodes *v1.NodeList, want int) error {
	far := map[string]string{}
	for _, node := range nodes.Items {
		if zone := node.Labels[v1.LabelTopologyZone]; zone == "zone-8" || zone == "zone-9" {
			far[node.Name] = zone
		}
	}
	pods, err := tCtx.Client().CoreV1().Pods(measured).List(tCtx, metav1.ListOptions{LabelSelector: "app=" + podApp})
	if err != nil {
		return err
	}
	if len(pods.Items) != want {
		return fmt.Errorf("%d pods, not %d", len(pods.Items), want)
	}
	for _, pod := range pods.Items {
		if zone, isFar := far[pod.Spec.NodeName]; isFar || pod.Spec.NodeName == "" {
			return fmt.Errorf("pod %s is on node %q of %q, beyond its limit", pod.Name, pod.Spec.NodeName, zone)
		}
	}
	return nil
}

// ours are Tautline's counters of a metrics page.
func ours(page string) string {
	var lines []string
	for line := range strings.SplitSeq(page, "\n") {
		if sample.MatchString(line) && !strings.Contains(line, "_bucket{") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
