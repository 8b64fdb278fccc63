package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	workloads = `tautline-scheduler tautline-controller tautline-admission tautline-gpu-slice tautline-latency`
	existing  = "scheduler: {mode: existing}\n"
)

// want is a field, as in objects.at, and its text.
type want map[string]string

// each makes the same expectation of several objects of a kind.
func each(kind, names, path, text string) want {
	all := want{}
	for name := range strings.FieldsSeq(names) {
		all[kind+"/"+name+" "+path] = text
	}
	return all
}

func (w want) and(more want) want {
	for field, text := range more {
		w[field] = text
	}
	return w
}

const (
	pod       = ".spec.template.spec"
	container = pod + `.containers[?(@.name=="tautline")]`
	scheduler = pod + `.containers[?(@.name=="kube-scheduler")]`
	args      = container + ".args"
)

// The components with spans.
const traced = "tautline-scheduler tautline-controller tautline-gpu-slice tautline-latency"

func tracing(name, text string) want {
	return each("Deployment", traced, container+`.env[?(@.name=="`+name+`")].value`, text)
}

// A case for each value: what it changes. `value` may name several, with spaces.
var cases = []struct {
	value, values string
	want          want
}{
	{"image.repository image.tag image.pullPolicy", "image: {repository: r.example/t, tag: v9, pullPolicy: Always}",
		each("Deployment", workloads, container+".image", "r.example/t:v9").
			and(each("Deployment", workloads, container+".imagePullPolicy", "Always")).
			and(want{"DaemonSet/tautline-latency-agent " + container + ".image": "r.example/t:v9"}).
			and(want{"Deployment/tautline-scheduler " + scheduler + ".imagePullPolicy": "Always"})},
	{"image.pullSecrets", "image: {pullSecrets: [{name: s}]}",
		each("Deployment", workloads, pod+".imagePullSecrets[*].name", "s")},
	{"scheduler.mode", existing, want{
		"Deployment/tautline-scheduler":         "",
		"ConfigMap/tautline-scheduler":          "",
		"ServiceAccount/tautline-scheduler":     "",
		"ClusterRoleBinding/tautline-scheduler": "",
		"Deployment/tautline-extender":          "tautline-extender",
		"Deployment/tautline-admission " + args: `["admission","--listen=[::]:10250","--governed"]`,
		"Deployment/tautline-extender " + args:  `["extender","--tls-secret=tautline-extender-generated-tls"]`,
	}},
	{"scheduler.name", "scheduler: {name: other}", want{
		"Deployment/tautline-admission " + args: `["admission","--listen=[::]:10250","--scheduler-name=other"]`,
	}},
	{"scheduler.image.repository scheduler.image.tag", "scheduler: {image: {repository: r.example/k, tag: v1.2.3}}", want{
		"Deployment/tautline-scheduler " + scheduler + ".image": "r.example/k:v1.2.3",
	}},
	{"scheduler.extraArgs scheduler.resources", "scheduler: {extraArgs: [--v=4], resources: {limits: {memory: 2Gi}}}", want{
		"Deployment/tautline-scheduler " + scheduler + ".command":                 `["kube-scheduler","--config=/etc/tautline/config.yaml","--v=4"]`,
		"Deployment/tautline-scheduler " + scheduler + ".resources.limits.memory": "2Gi",
	}},
	{"extender.replicas", "extender: {replicas: 1}", want{
		"Deployment/tautline-scheduler .spec.replicas":              "1",
		"Deployment/tautline-scheduler " + pod + ".affinity":        "",
		"Deployment/tautline-scheduler " + container + ".lifecycle": "",
		"PodDisruptionBudget/tautline-scheduler":                    "",
	}},
	{"extender.bind", "extender: {bind: true}", want{
		"Deployment/tautline-scheduler " + args:                       `["extender","--listen=127.0.0.1:8888","--bind"]`,
		"ClusterRoleBinding/tautline-extender-bind .subjects[*].name": "tautline-scheduler",
	}},
	{"extender.tls.secretName", existing + "extender: {tls: {secretName: s}}", want{
		"Deployment/tautline-extender " + args:                                  `["extender","--tls-cert=/tls/tls.crt","--tls-key=/tls/tls.key"]`,
		"Deployment/tautline-extender " + container + ".volumeMounts[*].name":   "tls",
		"Deployment/tautline-extender " + pod + ".volumes[*].secret.secretName": "s",
		"Role/tautline-extender .rules[*].resources":                            `["leases"]`,
	}},
	{"extender.tls.requireClientCert", existing + "extender: {tls: {requireClientCert: true}}", want{
		"Deployment/tautline-extender " + args: `["extender","--tls-secret=tautline-extender-generated-tls","--require-client-cert"]`,
	}},
	{"extender.tls.requireClientCert", existing + "extender: {tls: {secretName: s, requireClientCert: true}}", want{
		"Deployment/tautline-extender " + args: `["extender","--tls-cert=/tls/tls.crt","--tls-key=/tls/tls.key","--tls-client-ca=/tls/ca.crt"]`,
	}},
	{"extender.extraArgs extender.affinity extender.resources",
		"extender: {extraArgs: [--answer=decisive], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 2Gi}}}", want{
			"Deployment/tautline-scheduler " + args:                                   `["extender","--listen=127.0.0.1:8888","--answer=decisive"]`,
			"Deployment/tautline-scheduler " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"Deployment/tautline-scheduler " + container + ".resources.limits.memory": "2Gi",
		}},
	{"controller.replicas", "controller: {replicas: 3}", want{"Deployment/tautline-controller .spec.replicas": "3"}},
	{"controller.advertiseGate", "controller: {advertiseGate: true}", want{
		"Deployment/tautline-controller " + args: `["controller","--advertise-gate"]`,
		"ClusterRole/tautline-controller-gate":   "tautline-controller-gate",
	}},
	{"controller.openReports", "controller: {openReports: true}", want{
		"Deployment/tautline-controller " + args:       `["controller","--open-reports"]`,
		"ClusterRole/tautline-controller-open-reports": "tautline-controller-open-reports",
	}},
	{"controller.extraArgs controller.affinity controller.resources",
		"controller: {extraArgs: [--dry-run], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 2Gi}}}", want{
			"Deployment/tautline-controller " + args:                                   `["controller","--dry-run"]`,
			"Deployment/tautline-controller " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"Deployment/tautline-controller " + container + ".resources.limits.memory": "2Gi",
		}},
	{"admission.replicas", "admission: {replicas: 3}", want{"Deployment/tautline-admission .spec.replicas": "3"}},
	{"admission.extraArgs admission.affinity admission.resources",
		"admission: {extraArgs: [--authorizer], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 2Gi}}}", want{
			"Deployment/tautline-admission " + args:                                   `["admission","--listen=[::]:10250","--scheduler-name=tautline-scheduler","--authorizer"]`,
			"Deployment/tautline-admission " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"Deployment/tautline-admission " + container + ".resources.limits.memory": "2Gi",
		}},
	{"webhooks.governed", "webhooks: {governed: false}", want{
		"MutatingWebhookConfiguration/tautline-governed": "",
		"Deployment/tautline-admission " + args:          `["admission","--listen=[::]:10250"]`,
	}},
	{"webhooks.ownResources", "webhooks: {ownResources: false}", want{
		"MutatingWebhookConfiguration/tautline-own-resources":   "",
		"ValidatingWebhookConfiguration/tautline-own-resources": "",
	}},
	{"webhooks.gpuSlices webhooks.mutationPolicies webhooks.modelRegistry",
		"webhooks: {gpuSlices: true, mutationPolicies: true, modelRegistry: true}", want{
			"MutatingWebhookConfiguration/tautline-gpu-slices":                           "tautline-gpu-slices",
			"MutatingWebhookConfiguration/tautline-mutation-policies":                    "tautline-mutation-policies",
			"MutatingWebhookConfiguration/tautline-model-registry":                       "tautline-model-registry",
			"ValidatingWebhookConfiguration/tautline-model-registry":                     "tautline-model-registry",
			"MutatingWebhookConfiguration/tautline-mutation-policies .webhooks[*].rules": "",
		}},
	{"webhooks.port webhooks.adminPort", "webhooks: {port: 443, adminPort: 9091}", want{
		"Deployment/tautline-admission " + args:                                  `["admission","--listen=[::]:443","--admin=[::]:9091","--scheduler-name=tautline-scheduler"]`,
		"Deployment/tautline-admission " + container + ".ports[*].containerPort": "443 9091",
		"Service/tautline-admission .spec.ports[*].port":                         "443 9090",
		"Service/tautline-admission .spec.ports[*].targetPort":                   "webhooks admin",
	}},
	{"webhooks.hostNetwork", "webhooks: {hostNetwork: true, port: 10260}", want{
		"Deployment/tautline-admission " + pod + ".hostNetwork":                  "true",
		"Deployment/tautline-admission " + pod + ".dnsPolicy":                    "ClusterFirstWithHostNet",
		"Deployment/tautline-admission .spec.strategy.rollingUpdate.maxSurge":    "0",
		"Deployment/tautline-controller " + pod + ".hostNetwork":                 "",
		"Deployment/tautline-admission " + container + ".ports[*].containerPort": "10260 9090",
	}},
	{"providers.latency.enabled", "providers: {latency: {enabled: false}}", want{
		"Deployment/tautline-latency":      "",
		"Service/tautline-latency":         "",
		"DaemonSet/tautline-latency-agent": "",
	}},
	{"providers.latency.replicas", "providers: {latency: {replicas: 1}}", want{
		"Deployment/tautline-latency .spec.replicas": "1",
		"PodDisruptionBudget/tautline-latency":       "",
	}},
	{"providers.latency.extraArgs providers.latency.affinity providers.latency.resources",
		"providers: {latency: {extraArgs: [--targets=8], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 2Gi}}}}", want{
			"Deployment/tautline-latency " + args: `["provider","latency","--agent-tokens=tautline-system/tautline-latency-agent",` +
				`"--echo-key-secret=tautline-system/tautline-latency-echo","--targets=8"]`,
			"Deployment/tautline-latency " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"Deployment/tautline-latency " + container + ".resources.limits.memory": "2Gi",
		}},
	{"providers.gpuSlice.enabled", "providers: {gpuSlice: {enabled: false}}", want{
		"Deployment/tautline-gpu-slice": "", "Service/tautline-gpu-slice": "",
	}},
	{"providers.gpuSlice.replicas", "providers: {gpuSlice: {replicas: 1}}", want{
		"Deployment/tautline-gpu-slice .spec.replicas": "1",
		"PodDisruptionBudget/tautline-gpu-slice":       "",
	}},
	{"providers.gpuSlice.extraArgs providers.gpuSlice.affinity providers.gpuSlice.resources",
		"providers: {gpuSlice: {extraArgs: [--policy=fgd], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 2Gi}}}}", want{
			"Deployment/tautline-gpu-slice " + args:                                   `["provider","gpu-slice","--lease=tautline-system/tautline-gpu-slice","--policy=fgd"]`,
			"Deployment/tautline-gpu-slice " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"Deployment/tautline-gpu-slice " + container + ".resources.limits.memory": "2Gi",
		}},
	{"providers.scripted.enabled providers.scripted.rules providers.scripted.replicas",
		"providers: {scripted: {enabled: true, rules: [a, b], replicas: 2}}", want{
			"Deployment/tautline-scripted .spec.replicas":                                    "2",
			"PodDisruptionBudget/tautline-scripted":                                          "tautline-scripted",
			`Service/tautline-scripted .metadata.labels.constraint\.ciena\.com/constraint-a`: "enabled",
			`Service/tautline-scripted .metadata.labels.constraint\.ciena\.com/constraint-b`: "enabled",
		}},
	{"providers.scripted.extraArgs providers.scripted.affinity providers.scripted.resources",
		"providers: {scripted: {enabled: true, extraArgs: [--log=debug], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 2Gi}}}}", want{
			"Deployment/tautline-scripted " + args:                                   `["provider","scripted","--log=debug"]`,
			"Deployment/tautline-scripted " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"Deployment/tautline-scripted " + container + ".resources.limits.memory": "2Gi",
			"PodDisruptionBudget/tautline-scripted":                                  "",
		}},
	{"agent.enabled", "agent: {enabled: false}", want{
		"DaemonSet/tautline-latency-agent": "", "ServiceAccount/tautline-latency-agent": "",
	}},
	{"agent.priorityClassName agent.nodeSelector agent.tolerations agent.affinity agent.extraArgs agent.resources",
		"agent: {priorityClassName: p, nodeSelector: {a: b}, tolerations: [{key: k}], affinity: {nodeAffinity: {}}, extraArgs: [--log=debug], resources: {limits: {memory: 1Gi}}}", want{
			"DaemonSet/tautline-latency-agent " + pod + ".priorityClassName":             "p",
			"DaemonSet/tautline-latency-agent " + pod + ".nodeSelector":                  `{"a":"b"}`,
			"DaemonSet/tautline-latency-agent " + pod + ".tolerations":                   `[{"key":"k"}]`,
			"DaemonSet/tautline-latency-agent " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"DaemonSet/tautline-latency-agent " + container + ".args[5]":                 "--log=debug",
			"DaemonSet/tautline-latency-agent " + container + ".resources.limits.memory": "1Gi",
			"Deployment/tautline-latency " + pod + ".nodeSelector":                       "",
		}},
	{"gpu.enabled", "gpu: {enabled: true, delivery: device-plugin}", want{
		"DaemonSet/tautline-gpu-agent " + args: `["agent","gpu","--provider=http://tautline-gpu-slice-agents.tautline-system.svc:5309",` +
			`"--token-file=/var/run/secrets/tautline/token","--token-over-http","--driver-root=/host","--limits=none"]`,
		"DaemonSet/tautline-gpu-agent " + pod + ".hostPID":                          "true",
		"DaemonSet/tautline-gpu-agent " + container + ".securityContext.privileged": "true",
		"DaemonSet/tautline-gpu-mps":                                                "",
		"Deployment/tautline-gpu-slice " + args:                                     `["provider","gpu-slice","--lease=tautline-system/tautline-gpu-slice","--agent-tokens=tautline-system/tautline-gpu-agent"]`,
		"Service/tautline-gpu-slice-agents .spec.publishNotReadyAddresses":          "true",
		"Deployment/tautline-scheduler " + args:                                     `["extender","--listen=127.0.0.1:8888","--bind"]`,
		"ClusterRole/tautline-extender-bind":                                        "tautline-extender-bind",
		"ClusterRole/tautline-gpu-slice .rules[2].resources":                        `["tokenreviews"]`,
		"ValidatingAdmissionPolicyBinding/tautline-gpu-devices":                     "tautline-gpu-devices",
		"ValidatingAdmissionPolicyBinding/tautline-gpu-agent":                       "tautline-gpu-agent",
	}},
	{"gpu.delivery gpu.evictAfter", "gpu: {enabled: true, delivery: dra, evictAfter: 10m}", want{
		"DaemonSet/tautline-gpu-agent " + args: `["agent","gpu","--provider=http://tautline-gpu-slice-agents.tautline-system.svc:5309",` +
			`"--token-file=/var/run/secrets/tautline/token","--token-over-http","--driver-root=/host","--delivery=dra","--evict-after=10m","--limits=none"]`,
		"DeviceClass/gpu.tautline.io .spec.extendedResourceName":            "tautline.io/gpu",
		"Deployment/tautline-scheduler " + args:                             `["extender","--listen=127.0.0.1:8888"]`,
		"ValidatingAdmissionPolicyBinding/tautline-gpu-agent":               "tautline-gpu-agent",
		"ValidatingAdmissionPolicyBinding/tautline-gpu-agent-slices":        "tautline-gpu-agent-slices",
		"ValidatingAdmissionPolicyBinding/tautline-gpu-requests":            "tautline-gpu-requests",
		"DaemonSet/tautline-gpu-agent " + pod + ".volumes[*].name":          "token driver-root dev plugins-registry cdi cdi-static run",
		"DaemonSet/tautline-gpu-agent " + container + ".volumeMounts[3]":    `{"mountPath":"/var/lib/kubelet/plugins_registry","name":"plugins-registry"}`,
		"DaemonSet/tautline-gpu-agent " + pod + ".volumes[3].hostPath.type": "DirectoryOrCreate",
	}},
	{"gpu.limits gpu.mps.resources gpu.mps.extraArgs", "gpu: {enabled: true, delivery: device-plugin, limits: mps, mps: {extraArgs: [--exclusive], resources: {limits: {memory: 3Gi}}}}", want{
		"DaemonSet/tautline-gpu-agent " + container + ".args[6]":                 "--limits=mps",
		"DaemonSet/tautline-gpu-agent " + container + ".resources.limits.memory": "128Mi",
		"DaemonSet/tautline-gpu-mps " + args:                                     `["agent","mps","--driver-root=/host","--exclusive"]`,
		"DaemonSet/tautline-gpu-mps .spec.updateStrategy.type":                   "OnDelete",
		"DaemonSet/tautline-gpu-mps " + container + ".resources.limits.memory":   "3Gi",
		"DaemonSet/tautline-gpu-mps " + pod + ".automountServiceAccountToken":    "",
		"ServiceAccount/tautline-gpu-mps .automountServiceAccountToken":          "false",
	}},
	{"gpu.timeslice", "gpu: {enabled: true, delivery: device-plugin, limits: timeslice, timeslice: short}", want{
		"DaemonSet/tautline-gpu-agent " + container + ".args[7]": "--timeslice=short",
	}},
	{"gpu.hamiCore", "gpu: {enabled: true, delivery: device-plugin, limits: hami-core, hamiCore: /opt/libvgpu.so}", want{
		"DaemonSet/tautline-gpu-agent " + container + ".args[7]": "--hami-core=/opt/libvgpu.so",
	}},
	{"gpu.extraArgs gpu.extraEnv",
		"gpu: {enabled: true, delivery: device-plugin, extraArgs: [--log=debug], extraEnv: [{name: A, value: b}]}", want{
			"DaemonSet/tautline-gpu-agent " + container + ".args[7]":     "--log=debug",
			"DaemonSet/tautline-gpu-agent " + container + ".env[*].name": "NODE_NAME A",
		}},
	{"gpu.driverRoot gpu.kubeletDir", "gpu: {enabled: true, delivery: device-plugin, driverRoot: /run/nvidia/driver, kubeletDir: /k}", want{
		"DaemonSet/tautline-gpu-agent " + container + ".args[6]":                                      "--kubelet-dir=/k",
		"DaemonSet/tautline-gpu-agent " + pod + `.volumes[?(@.name=="driver-root")].hostPath.path`:    "/run/nvidia/driver",
		"DaemonSet/tautline-gpu-agent " + pod + `.volumes[?(@.name=="device-plugins")].hostPath.path`: "/k/device-plugins",
		"DaemonSet/tautline-gpu-agent " + pod + `.volumes[?(@.name=="pod-resources")].hostPath.path`:  "/k/pod-resources",
	}},
	{"gpu.kubeletDir gpu.delivery", "gpu: {enabled: true, delivery: dra, kubeletDir: /k}", want{
		"DaemonSet/tautline-gpu-agent " + pod + `.volumes[?(@.name=="plugins-registry")].hostPath.path`: "/k/plugins_registry",
	}},
	{"gpu.runtimeClassName gpu.priorityClassName gpu.nodeSelector gpu.tolerations gpu.affinity gpu.resources",
		"gpu: {enabled: true, runtimeClassName: nvidia, priorityClassName: p, nodeSelector: {a: b}, tolerations: [{key: k}], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 1Gi}}}", want{
			"DaemonSet/tautline-gpu-agent " + pod + ".runtimeClassName":              "nvidia",
			"DaemonSet/tautline-gpu-agent " + pod + ".priorityClassName":             "p",
			"DaemonSet/tautline-gpu-agent " + pod + ".nodeSelector":                  `{"a":"b"}`,
			"DaemonSet/tautline-gpu-agent " + pod + ".tolerations":                   `[{"key":"k"}]`,
			"DaemonSet/tautline-gpu-agent " + pod + ".affinity":                      `{"nodeAffinity":{}}`,
			"DaemonSet/tautline-gpu-agent " + container + ".resources.limits.memory": "1Gi",
		}},
	{"clusters.enabled clusters.namespace", "clusters: {enabled: true, namespace: kubeconfigs}", want{
		"Deployment/tautline-controller " + args:            `["controller","--cluster-secrets=kubeconfigs"]`,
		"Deployment/tautline-scheduler " + args:             `["extender","--listen=127.0.0.1:8888","--cluster-secrets=kubeconfigs"]`,
		"Namespace/kubeconfigs":                             "kubeconfigs",
		"Role/tautline-clusters .metadata.namespace":        "kubeconfigs",
		"Role/tautline-clusters .rules[*].resources":        `["secrets"]`,
		"Role/tautline-clusters .rules[*].verbs":            `["get","list","watch"]`,
		"RoleBinding/tautline-clusters .metadata.namespace": "kubeconfigs",
		"RoleBinding/tautline-clusters .subjects[*].name":   "tautline-scheduler tautline-controller",
	}},
	{"providerUnavailable", "providerUnavailable: reject", want{
		"Deployment/tautline-scheduler " + args: `["extender","--listen=127.0.0.1:8888","--provider-unavailable=reject"]`,
	}},
	{"exemptNamespaces", "exemptNamespaces: [monitoring]", want{
		"Deployment/tautline-controller " + args: `["controller","--exempt-namespaces=kube-system,tautline-system,monitoring"]`,
		"Deployment/tautline-scheduler " + args:  `["extender","--listen=127.0.0.1:8888","--exempt-namespaces=kube-system,tautline-system,monitoring"]`,
		"MutatingWebhookConfiguration/tautline-governed .webhooks[0].namespaceSelector.matchExpressions[0].values": `["kube-system","tautline-system","monitoring"]`,
	}},
	{"providerNamespaces", "providerNamespaces: [infra]\nproviders: {scripted: {enabled: true}}", want{
		"Deployment/tautline-controller " + args:        `["controller","--provider-namespaces=tautline-system,infra"]`,
		"Deployment/tautline-scheduler " + args:         `["extender","--listen=127.0.0.1:8888","--provider-namespaces=tautline-system,infra"]`,
		"Deployment/tautline-admission " + args + "[3]": "--provider-namespaces=tautline-system,infra",
		"Deployment/tautline-latency " + args + "[4]":   "--provider-namespaces=tautline-system,infra",
		"Deployment/tautline-scripted " + args + "[2]":  "--provider-namespaces=tautline-system,infra",
	}},
	{"providerTLS.clientSecret", "providerTLS: {clientSecret: c}", want{
		"Deployment/tautline-controller " + args: `["controller","--provider-ca=/provider-tls/client/ca.crt",` +
			`"--provider-cert=/provider-tls/client/tls.crt","--provider-key=/provider-tls/client/tls.key"]`,
		"Deployment/tautline-controller " + pod + ".volumes[*].secret.secretName": "c",
		"Deployment/tautline-scheduler " + pod + ".volumes[*].secret.secretName":  "c",
		"Deployment/tautline-latency " + pod + ".volumes":                         "",
		"DaemonSet/tautline-latency-agent " + container + ".args[2]":              "--provider=http://tautline-latency-agents.tautline-system.svc:5309",
	}},
	{"providerTLS.serverSecret", "providerTLS: {clientSecret: c, serverSecret: s}\nproviders: {scripted: {enabled: true}}",
		each("Deployment", "tautline-latency tautline-scripted", pod+".volumes[*].secret.secretName", "s").
			and(each("Service", "tautline-latency tautline-gpu-slice tautline-scripted", `.metadata.annotations.constraint\.ciena\.com/tls`, "required")).
			and(want{
				"Deployment/tautline-gpu-slice " + pod + ".volumes[*].secret.secretName":    "s c",
				"Deployment/tautline-gpu-slice " + args + "[3]":                             "--tls-name=tautline-gpu-slice.tautline-system.svc",
				"Deployment/tautline-scripted " + args:                                      `["provider","scripted","--tls-cert=/provider-tls/server/tls.crt","--tls-key=/provider-tls/server/tls.key","--tls-client-ca=/provider-tls/server/ca.crt"]`,
				"DaemonSet/tautline-latency-agent " + pod + ".volumes[*].secret.secretName": "c",
				"DaemonSet/tautline-latency-agent " + args: `["agent","latency","--provider=https://tautline-latency-agents.tautline-system.svc:5309",` +
					`"--token-file=/var/run/secrets/tautline/token","--provider-ca=/provider-tls/client/ca.crt",` +
					`"--provider-cert=/provider-tls/client/tls.crt","--provider-key=/provider-tls/client/tls.key"]`,
			})},
	{"listenHost", existing + "listenHost: 0.0.0.0", want{
		"Deployment/tautline-extender " + args:             `["extender","--tls-secret=tautline-extender-generated-tls","--listen=0.0.0.0:8888","--admin=0.0.0.0:9090"]`,
		"Deployment/tautline-admission " + args:            `["admission","--listen=0.0.0.0:10250","--admin=0.0.0.0:9090","--governed"]`,
		"Deployment/tautline-controller " + args:           `["controller","--admin=0.0.0.0:9090"]`,
		"Deployment/tautline-gpu-slice " + args + "[3]":    "--listen=0.0.0.0:5309",
		"Deployment/tautline-latency " + args + "[4]":      "--listen=0.0.0.0:5309",
		"DaemonSet/tautline-latency-agent " + args + "[5]": "--listen=0.0.0.0:5310",
	}},
	{"priorityClassName", `priorityClassName: ""`,
		each("Deployment", workloads, pod+".priorityClassName", "").and(want{
			"ResourceQuota/tautline-priority-classes .spec.scopeSelector.matchExpressions[0].values": `["system-node-critical"]`,
		})},
	{"priorityClassQuota", "priorityClassQuota: false", want{"ResourceQuota/tautline-priority-classes": ""}},
	{"podSecurityContext", "podSecurityContext: {runAsUser: null}",
		each("Deployment", workloads, pod+".securityContext.runAsUser", "").
			and(each("Deployment", workloads, pod+".securityContext.runAsNonRoot", "true"))},
	{"podSecurityContext securityContext", "podSecurityContext: null\nsecurityContext: null",
		each("Deployment", workloads, pod+".securityContext", "").
			and(each("Deployment", workloads, pod+".containers[*].securityContext", "")).
			and(want{"DaemonSet/tautline-latency-agent " + container + ".securityContext": ""})},
	{"nodeSelector tolerations", "nodeSelector: {a: b}\ntolerations: [{key: k}]",
		each("Deployment", workloads, pod+".nodeSelector", `{"a":"b"}`).
			and(each("Deployment", workloads, pod+".tolerations", `[{"key":"k"}]`)).
			and(want{"DaemonSet/tautline-latency-agent " + pod + ".tolerations": `[{"operator":"Exists"}]`})},
	{"podDisruptionBudgets.enabled", "podDisruptionBudgets: {enabled: false}", each("PodDisruptionBudget", workloads, "", "")},
	{"preStopSleepSeconds", "preStopSleepSeconds: 0",
		each("Deployment", workloads, container+".lifecycle", "")},
	{"networkPolicy.enabled networkPolicy.monitoring", "networkPolicy: {enabled: true, monitoring: {matchLabels: {team: m}}}",
		each("NetworkPolicy", workloads+" tautline-latency-agent", ".spec.policyTypes[0]", "Ingress").and(want{
			"NetworkPolicy/tautline-scheduler .spec.ingress[*].ports[*].port":                                            "9090",
			"NetworkPolicy/tautline-admission .spec.ingress[*].ports[*].port":                                            "10250 9090",
			`NetworkPolicy/tautline-gpu-slice .spec.ingress[0].from[*].podSelector.matchLabels.app\.kubernetes\.io/name`: "tautline-gpu-slice tautline-scheduler tautline-controller",
		})},
	{"networkPolicy.extenderAdminFrom", "networkPolicy: {enabled: true, extenderAdminFrom: [{ipBlock: {cidr: 10.0.0.0/28}}]}", want{
		"NetworkPolicy/tautline-scheduler .spec.ingress[*].ports[*].port":         "9090",
		"NetworkPolicy/tautline-scheduler .spec.ingress[0].from[1].ipBlock.cidr":  "10.0.0.0/28",
		"NetworkPolicy/tautline-controller .spec.ingress[*].from[*].ipBlock.cidr": "",
	}},
	{"networkPolicy.extenderAdminFrom", existing + "networkPolicy: {enabled: true, extenderAdminFrom: [{ipBlock: {cidr: 10.0.0.0/28}}]}", want{
		"NetworkPolicy/tautline-extender .spec.ingress[0].from":                 "",
		"NetworkPolicy/tautline-extender .spec.ingress[1].from[1].ipBlock.cidr": "10.0.0.0/28",
	}},
	{"metrics.podMonitor.enabled metrics.podMonitor.interval metrics.podMonitor.labels",
		"metrics: {podMonitor: {enabled: true, interval: 5s, labels: {release: p}}}", want{
			"PodMonitor/tautline .spec.podMetricsEndpoints[*].interval": "5s",
			"PodMonitor/tautline .metadata.labels.release":              "p",
		}},
	{"metrics.prometheusRule.enabled metrics.prometheusRule.labels",
		"metrics: {prometheusRule: {enabled: true, labels: {release: p}}}", want{
			"PrometheusRule/tautline .metadata.labels.release": "p",
			"PrometheusRule/tautline .spec.groups[*].name":     "tautline",
		}},
	{"tracing.endpoint tracing.samplingRatio", "tracing: {endpoint: 'http://c:4317', samplingRatio: 0.25}", tracing(
		"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317").and(tracing("OTEL_TRACES_SAMPLER_ARG", "0.25"))},
	{"tracing.caConfigMap", "tracing: {endpoint: 'https://c:4317', caConfigMap: ca}",
		tracing("OTEL_EXPORTER_OTLP_CERTIFICATE", "/tracing-ca/ca.crt").
			and(each("Deployment", traced, container+`.volumeMounts[?(@.name=="tracing-ca")].mountPath`, "/tracing-ca")).
			and(each("Deployment", traced, pod+`.volumes[?(@.name=="tracing-ca")].configMap.name`, "ca"))},
	{"tracing.caConfigMap scheduler.mode", "scheduler: {mode: existing}\ntracing: {endpoint: 'https://c:4317', caConfigMap: ca}", want{
		"Deployment/tautline-extender " + pod + `.volumes[?(@.name=="tracing-ca")].configMap.name`: "ca",
	}},
	{"dashboards.enabled dashboards.labels", "dashboards: {enabled: true, labels: {dash: 'yes'}}", want{
		"ConfigMap/tautline-dashboards .metadata.labels.dash":              "yes",
		"ConfigMap/tautline-dashboards .metadata.labels.grafana_dashboard": "1",
	}},
	{"crds.install", "crds: {install: false}", want{
		"CustomResourceDefinition/constraintpolicies.constraint.ciena.com": "",
		"CustomResourceDefinition/mutationpolicies.tautline.io":            "",
	}},
	{"aggregatedRoles", "aggregatedRoles: false", want{"ClusterRole/tautline-view": "", "ClusterRole/tautline-edit": ""}},
}

func TestValues(t *testing.T) {
	defaults, _ := render(t, Release{KubeVersion: "v1.36.3"}, "")
	for _, test := range cases {
		t.Run(test.value, func(t *testing.T) {
			all, _ := render(t, Release{KubeVersion: "v1.36.3"}, test.values)
			changed := false
			for field, text := range test.want {
				if got := all.at(t, field); got != text {
					t.Errorf("%s\nis   %q\nwant %q", field, got, text)
				}
				changed = changed || defaults.at(t, field) != text
			}
			if !changed {
				t.Error("the defaults have all of this too")
			}
		})
	}
}

func TestEveryValueHasACase(t *testing.T) {
	tested := map[string]bool{}
	for _, test := range cases {
		for value := range strings.FieldsSeq(test.value) {
			tested[value] = true
		}
	}
	text, err := os.ReadFile(filepath.Join(Dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	all, err := read("", document.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	var visit func([]value)
	visit = func(values []value) {
		for _, v := range values {
			if v.children != nil {
				visit(v.children)
			} else if !tested[v.path] {
				t.Errorf("%s has no case", v.path)
			}
			delete(tested, v.path)
		}
	}
	visit(all)
	for value := range tested {
		t.Errorf("%s is no value", value)
	}
}
