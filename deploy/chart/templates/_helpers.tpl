{{- define "tautline.labels" -}}
app.kubernetes.io/part-of: tautline
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Name of the extender's workload and account. */}}
{{- define "tautline.extender" -}}
{{- eq .Values.scheduler.mode "second" | ternary "tautline-scheduler" "tautline-extender" -}}
{{- end }}

{{/* "true" if a webhook is on. */}}
{{- define "tautline.admission" -}}
{{- with .Values.webhooks -}}
{{- if or .governed .ownResources .gpuSlices .mutationPolicies .modelRegistry }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* How containers get cards: dra or device-plugin. A release of an older chart has no value. */}}
{{- define "tautline.gpuDelivery" -}}
{{- $delivery := .Values.gpu.delivery | default "auto" -}}
{{- if ne $delivery "auto" }}{{ $delivery }}
{{- else if semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version }}dra
{{- else }}device-plugin
{{- end -}}
{{- end }}

{{/* "true" if the agents deliver cards by DRA. */}}
{{- define "tautline.gpuDra" -}}
{{- if and .Values.gpu.enabled (eq (include "tautline.gpuDelivery" .) "dra") }}true{{ end -}}
{{- end }}

{{/* "true" if the extender binds. With DRA kube-scheduler allocates the cards. */}}
{{- define "tautline.bind" -}}
{{- if or .Values.extender.bind (and .Values.gpu.enabled (not (include "tautline.gpuDra" .))) }}true{{ end -}}
{{- end }}

{{/* Exempt namespaces, with commas. */}}
{{- define "tautline.exemptNamespaces" -}}
{{- concat (list "kube-system" .Release.Namespace) .Values.exemptNamespaces | uniq | join "," -}}
{{- end }}

{{/* Flag of the exempt namespaces, if they are not the default. */}}
{{- define "tautline.exemptArgs" -}}
{{- with include "tautline.exemptNamespaces" . }}{{ if ne . "kube-system,tautline-system" -}}
- --exempt-namespaces={{ . }}
{{- end }}{{ end }}
{{- end }}

{{- define "tautline.trustArgs" -}}
{{- with .Values.providerNamespaces -}}
- --provider-namespaces={{ prepend . $.Release.Namespace | uniq | join "," }}
{{- end }}
{{- end }}

{{/* Flag of the kubeconfigs of other clusters. */}}
{{- define "tautline.clusterArgs" -}}
{{- if .Values.clusters.enabled -}}
- --cluster-secrets={{ .Values.clusters.namespace }}
{{- end }}
{{- end }}

{{/* A ClusterRoleBinding: (list $ NAME ACCOUNT ROLE). */}}
{{- define "tautline.clusterRoleBinding" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ index . 1 }}
  labels: {{- include "tautline.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ index . 3 }}
subjects:
- kind: ServiceAccount
  name: {{ index . 2 }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* A RoleBinding of a Role of the same name: (list $ NAME ACCOUNT). */}}
{{- define "tautline.roleBinding" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "tautline.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ index . 1 }}
subjects:
- kind: ServiceAccount
  name: {{ index . 2 }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* Fields of every pod: (list $ NAME VALUES). */}}
{{- define "tautline.pod" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $values := index . 2 -}}
serviceAccountName: {{ $name }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with $values.priorityClassName | default $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with hasKey $values "podSecurityContext" | ternary $values.podSecurityContext $root.Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with hasKey $values "nodeSelector" | ternary $values.nodeSelector $root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with hasKey $values "tolerations" | ternary $values.tolerations $root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- if $values.affinity }}
affinity: {{- toYaml $values.affinity | nindent 2 }}
{{- else if gt (int $values.replicas) 1 }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {matchLabels: {app.kubernetes.io/name: {{ $name }}}}
{{- end }}
{{- end }}

{{/* Fields of every container of Tautline: (list $ VALUES). */}}
{{- define "tautline.container" -}}
{{- $root := index . 0 }}{{ $values := index . 1 -}}
name: tautline
image: {{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
livenessProbe:
  httpGet: {path: /livez, port: admin}
{{- with $values.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with hasKey $values "securityContext" | ternary $values.securityContext $root.Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The Services remove a pod before its listener closes: (list $ VALUES). */}}
{{- define "tautline.preStop" -}}
{{- $root := index . 0 -}}
{{- if and (gt (int (index . 1).replicas) 1) $root.Values.preStopSleepSeconds -}}
lifecycle:
  preStop: {sleep: {seconds: {{ $root.Values.preStopSleepSeconds }}}}
{{- end }}
{{- end }}

{{/* A PodDisruptionBudget of several replicas: (list $ NAME VALUES). */}}
{{- define "tautline.podDisruptionBudget" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
{{- if and $root.Values.podDisruptionBudgets.enabled (gt (int (index . 2).replicas) 1) -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "tautline.labels" $root | nindent 4 }}
spec:
  minAvailable: 1
  selector:
    matchLabels: {app.kubernetes.io/name: {{ $name }}}
{{- end }}
{{- end }}

{{/* Variables of a container whose decisions or answers have spans. */}}
{{- define "tautline.tracingEnv" -}}
{{- with .Values.tracing.endpoint -}}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ $.Values.tracing.samplingRatio | toString | quote }}}
{{- if $.Values.tracing.caConfigMap }}
- {name: OTEL_EXPORTER_OTLP_CERTIFICATE, value: /tracing-ca/ca.crt}
{{- end }}
{{- end }}
{{- end }}

{{- define "tautline.tracingMount" -}}
{{- if and .Values.tracing.endpoint .Values.tracing.caConfigMap -}}
- {name: tracing-ca, mountPath: /tracing-ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "tautline.tracingVolume" -}}
{{- if and .Values.tracing.endpoint .Values.tracing.caConfigMap -}}
- name: tracing-ca
  configMap: {name: {{ .Values.tracing.caConfigMap }}}
{{- end }}
{{- end }}

{{/* What callers of providers, and providers, mount; empty if nothing. */}}
{{- define "tautline.clientMounts" -}}
{{- list (include "tautline.providerClientMount" .) (include "tautline.tracingMount" .) | compact | join "\n" -}}
{{- end }}

{{- define "tautline.clientVolumes" -}}
{{- list (include "tautline.providerClientVolume" .) (include "tautline.tracingVolume" .) | compact | join "\n" -}}
{{- end }}

{{- define "tautline.serverMounts" -}}
{{- list (include "tautline.providerServerMount" .) (include "tautline.tracingMount" .) | compact | join "\n" -}}
{{- end }}

{{- define "tautline.serverVolumes" -}}
{{- list (include "tautline.providerServerVolume" .) (include "tautline.tracingVolume" .) | compact | join "\n" -}}
{{- end }}

{{/* mTLS with providers: flags, mounts and volumes of callers and servers. */}}
{{- define "tautline.providerClientArgs" -}}
{{- if .Values.providerTLS.clientSecret -}}
- --provider-ca=/provider-tls/client/ca.crt
- --provider-cert=/provider-tls/client/tls.crt
- --provider-key=/provider-tls/client/tls.key
{{- end }}
{{- end }}

{{- define "tautline.providerClientMount" -}}
{{- if .Values.providerTLS.clientSecret -}}
- {name: provider-client, mountPath: /provider-tls/client, readOnly: true}
{{- end }}
{{- end }}

{{- define "tautline.providerClientVolume" -}}
{{- with .Values.providerTLS.clientSecret -}}
- name: provider-client
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}

{{- define "tautline.providerServerArgs" -}}
{{- if .Values.providerTLS.serverSecret -}}
- --tls-cert=/provider-tls/server/tls.crt
- --tls-key=/provider-tls/server/tls.key
- --tls-client-ca=/provider-tls/server/ca.crt
{{- end }}
{{- end }}

{{- define "tautline.providerServerMount" -}}
{{- if .Values.providerTLS.serverSecret -}}
- {name: provider-server, mountPath: /provider-tls/server, readOnly: true}
{{- end }}
{{- end }}

{{- define "tautline.providerServerVolume" -}}
{{- with .Values.providerTLS.serverSecret -}}
- name: provider-server
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}
