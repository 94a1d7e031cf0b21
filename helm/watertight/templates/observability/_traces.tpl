{{/*
Where traces go. watertight.traceStore is what keeps them: observability.otlpEndpoint or, without one, the Jaeger here.
watertight.otlpEndpoint is what the processes are given: the collector here, where it is enabled, or the store itself. Both are
empty when nobody keeps traces. (root)
*/}}
{{- define "watertight.traceStore" -}}
{{- if .Values.observability.otlpEndpoint }}{{ .Values.observability.otlpEndpoint }}
{{- else if .Values.observability.jaeger.enabled }}http://jaeger:4317
{{- end }}
{{- end }}

{{- define "watertight.otlpEndpoint" -}}
{{- if .Values.observability.collector.enabled }}http://collector:4317
{{- else }}{{ include "watertight.traceStore" . }}
{{- end }}
{{- end }}

{{/* watertight.otlpEgress is the rule of a NetworkPolicy that lets traces out to an endpoint. (list root endpoint) */}}
{{- define "watertight.otlpEgress" -}}
{{- $root := index . 0 }}
{{- $endpoint := index . 1 }}
- ports:
    - {protocol: TCP, port: {{ regexFind "[0-9]+$" (trimSuffix "/" $endpoint) | default 4317 }}}
  {{- $inside := regexFind "^http://(collector|jaeger):4317$" $endpoint | trimPrefix "http://" | trimSuffix ":4317" }}
  {{- if $inside }}
  to:
    - {{ include "watertight.peer" (list $root $inside) | indent 6 | trim }}
  {{- else }}
  {{- with $root.Values.networkPolicy.otlpPeers }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}

{{/*
watertight.observer is a Deployment of one pod that keeps or passes on traces, with what it needs. Its config is the ConfigMap of its
name. It is no part of the shop: orders go on without it. (dict root name image args resources ports probe user config)
*/}}
{{- define "watertight.observer" -}}
{{- $root := .root }}
{{- $labels := list $root .name "observability" -}}
{{ include "watertight.serviceAccount" $labels }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" $labels | nindent 4 }}
data:
  config.yaml: |
    {{- .config | trim | nindent 4 }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" $labels | nindent 4 }}
spec:
  selector:
    {{- include "watertight.selector" $labels | nindent 4 }}
  ports:
    - {name: otlp, port: 4317, targetPort: otlp, protocol: TCP, appProtocol: grpc}
---
{{ include "watertight.disruptionBudget" $labels }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" $labels | nindent 4 }}
spec:
  replicas: 1
  revisionHistoryLimit: 5
  strategy: {type: Recreate} # what it holds is in memory: two at once would each have a part
  selector:
    matchLabels:
      {{- include "watertight.selector" $labels | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "watertight.labels" $labels | nindent 8 }}
      annotations:
        checksum/config: {{ .config | sha256sum }}
        {{- with $root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with include "watertight.placement" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      terminationGracePeriodSeconds: 30
      securityContext:
        {{- include "watertight.podSecurity" .user | nindent 8 }}
      containers:
        - name: {{ .name }}
          image: {{ .image }}
          imagePullPolicy: {{ $root.Values.images.pullPolicy }}
          args: ["--config=file:/etc/{{ .name }}/config.yaml"]
          env:
            - {name: GOMEMLIMIT, value: {{ include "watertight.goMemoryLimit" .resources.limits.memory | quote }}}
          ports:
            {{- range $port, $number := .ports }}
            - {name: {{ $port }}, containerPort: {{ $number }}, protocol: TCP}
            {{- end }}
          startupProbe:
            httpGet: {path: {{ .probe }}, port: health}
            periodSeconds: 1
            timeoutSeconds: 2
            failureThreshold: 60
          readinessProbe:
            httpGet: {path: {{ .probe }}, port: health}
            periodSeconds: 5
            timeoutSeconds: 2
          livenessProbe:
            tcpSocket: {port: health}
            periodSeconds: 20
            timeoutSeconds: 5
            failureThreshold: 6
          resources:
            {{- toYaml .resources | nindent 12 }}
          securityContext:
            {{- include "watertight.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - {name: config, mountPath: /etc/{{ .name }}, readOnly: true}
      volumes:
        - name: config
          configMap: {name: {{ .name }}}
{{- end }}
