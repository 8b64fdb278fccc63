{{/* Of both modes, scheduler.yaml and extender.yaml. */}}
{{- define "tautline.extenderArgs" -}}
{{- with .Values.listenHost }}
- --admin={{ . }}:9090
{{- end }}
{{- with .Values.providerUnavailable }}
- --provider-unavailable={{ . }}
{{- end }}
{{- include "tautline.exemptArgs" . | nindent 0 }}
{{- include "tautline.trustArgs" . | nindent 0 }}
{{- include "tautline.clusterArgs" . | nindent 0 }}
{{- include "tautline.providerClientArgs" . | nindent 0 }}
{{- with .Values.extender.extraArgs }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* The Secret of mode existing, if the extender generates its certificate. */}}
{{- define "tautline.generatedTls" -}}
tautline-extender-generated-tls
{{- end }}

{{- define "tautline.extenderEnv" -}}
env:
# Watches have their own threads: one glibc heap per thread wastes memory.
- {name: MALLOC_ARENA_MAX, value: "1"}
# The memory of large requests goes back to the system at once.
- {name: MALLOC_MMAP_THRESHOLD_, value: "1048576"}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- include "tautline.tracingEnv" . | nindent 0 }}
{{- end }}

{{- define "tautline.kubeSchedulerTag" -}}
{{- .Values.scheduler.image.tag | default (regexReplaceAll "[-+].*$" .Capabilities.KubeVersion.Version "") -}}
{{- end }}

{{- define "tautline.schedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: tautline-scheduler
  resourceNamespace: {{ .Release.Namespace }}
profiles:
- schedulerName: {{ .Values.scheduler.name }}
extenders:
- urlPrefix: http://127.0.0.1:8888
  {{- include "tautline.extenderCalls" . | nindent 2 }}
{{- end }}

{{- define "tautline.extenderCalls" -}}
# Names instead of whole nodes: six times faster, and resource scores stay right.
nodeCacheCapable: true
filterVerb: filter
prioritizeVerb: prioritize
preemptVerb: preempt
{{- if include "tautline.bind" . }}
bindVerb: bind
{{- end }}
# A score of 0..10 counts as 0..100 x weight. The default plugins' weights sum
# to 14, so they add up to at most 1,400; one step here counts 1,500.
weight: 150
{{- if include "tautline.bind" . }}
# A bind waits for the others of its group, for --group-timeout (30s) at most.
httpTimeout: 35s
{{- else }}
# Above the extender's own --deadline of 4s.
httpTimeout: 5s
{{- end }}
# true ignores every limit while the extender is down.
ignorable: false
{{- end }}

{{/* For your kube-scheduler, in mode existing. */}}
{{- define "tautline.existingSchedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
extenders:
- urlPrefix: https://tautline-extender.{{ .Release.Namespace }}.svc:8888
  enableHTTPS: true
  tlsConfig:
    # Without a CA kube-scheduler does not verify the server, without a warning.
    caFile: /etc/kubernetes/tautline/ca.crt
    {{- if .Values.extender.tls.requireClientCert }}
    certFile: /etc/kubernetes/tautline/client.crt
    keyFile: /etc/kubernetes/tautline/client.key
    {{- end }}
  {{- include "tautline.extenderCalls" . | nindent 2 }}
  {{- if .Values.webhooks.governed }}
  managedResources:
  - name: constraint.ciena.com/governed
    # A resource of the whole cluster: no node needs to advertise it.
    ignoredByScheduler: true
  {{- end }}
{{- end }}
