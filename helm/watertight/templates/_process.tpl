{{/*
The objects of one process of the shop. Each takes (list root name process), process being its line of watertight.processes.
*/}}

{{/*
watertight.env: the process's variables for its ConfigMap: what follows from the design, then what the user sets. Everything
is a string, whatever it looked like in YAML.
*/}}
{{- define "watertight.env" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $process := index . 2 }}
{{- $ports := include "watertight.ports" $process | fromYaml }}
{{- $own := get $root.Values.services $name }}
{{- $env := dict "LOG_LEVEL" $root.Values.logLevel "LOG_FORMAT" "json" "OTEL_SERVICE_NAME" $name "FAULTS_ENABLED" $root.Values.faults.enabled
    "DRAIN_DELAY" (printf "%ds" (int $root.Values.drain.delay)) "DRAIN_TIMEOUT" (printf "%ds" (int $root.Values.drain.timeout)) }}
{{- range $port, $number := $ports }}
{{- $_ := set $env (printf "%s_ADDR" (upper $port)) (printf ":%d" (int $number)) }}
{{- end }}
{{- if $process.holds }}
{{- $_ := set $env "STREAM_MAX_BYTES" $root.Values.streamMaxBytes }}
{{- end }}
{{- if and $root.Values.faults.enabled $process.holds }}
{{- /* The fault oom must reach the memory limit before the bound at which it ends by itself. */}}
{{- $_ := set $env "FAULT_OOM_BOUND" (mul 2 (include "watertight.memoryBytes" $own.resources.limits.memory | int64)) }}
{{- end }}
{{- with include "watertight.otlpEndpoint" $root }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_ENDPOINT" . }}
{{- end }}
{{- if and $root.Values.envoy.enabled $process.calls $process.http }}
{{- range $upstream, $port := include "watertight.envoyPorts" $root | fromYaml }}
{{- $_ := set $env (printf "%s_ADDR" (upper $upstream)) (printf "static:///127.0.0.1:%d" (int $port)) }}
{{- end }}
{{- $_ := set $env "RETRY_LAYERS" 0 }}
{{- end }}
{{- if $root.Values.mtls.enabled }}
{{- $env = merge (include "watertight.tlsEnv" $root | fromYaml) $env }}
{{- end }}
{{- range $variable, $value := mergeOverwrite $env (deepCopy ($process.env | default dict)) (deepCopy $own.env) }}
{{ $variable }}: {{ include "watertight.string" $value | quote }}
{{- end }}
{{- end }}

{{/* watertight.secretVariables: the variables that come from a Secret, as a YAML list. */}}
{{- define "watertight.secretVariables" -}}
{{- $process := index . 2 -}}
- NATS_URL
{{- range $process.holds }}
{{- $prefix := ternary (printf "%s_" (upper .)) "" (default false $process.prefix) }}
- {{ $prefix }}DATABASE_URL
- {{ $prefix }}MIGRATE_DATABASE_URL
{{- end }}
{{- end }}

{{- define "watertight.configMap" -}}
{{- $name := index . 1 -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- include "watertight.labels" (list (index . 0) $name (include "watertight.component" (index . 2))) | nindent 4 }}
data:
  {{- include "watertight.env" . | trim | nindent 2 }}
{{- end }}

{{/* watertight.secret: the URLs with the process's own users and passwords. */}}
{{- define "watertight.secret" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $process := index . 2 }}
{{- $passwords := $root.Values.passwords -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" (list $root $name (include "watertight.component" $process)) | nindent 4 }}
type: Opaque
stringData:
  NATS_URL: {{ printf "nats://%s:%s@nats:4222" $process.user (get $passwords.broker $process.user) | quote }}
  {{- range $process.holds }}
  {{- $prefix := ternary (printf "%s_" (upper .)) "" (default false $process.prefix) }}
  {{- $database := ternary $name . (default false $process.oneDatabase) }}
  {{- $schema := ternary (printf "&search_path=%s" .) "" (default false $process.oneDatabase) }}
  {{ $prefix }}DATABASE_URL: {{ printf "postgres://%s:%s@postgres:5432/%s?sslmode=disable%s" $database (get $passwords.database $database) $database $schema | quote }}
  {{ $prefix }}MIGRATE_DATABASE_URL: {{ printf "postgres://%s_owner:%s@postgres:5432/%s?sslmode=disable%s" $database (get $passwords.databaseOwner $database) $database $schema | quote }}
  {{- end }}
{{- end }}

{{- define "watertight.component" -}}
{{ if .http }}edge{{ else }}service{{ end }}
{{- end }}

{{- define "watertight.deployment" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $process := index . 2 }}
{{- $own := get $root.Values.services $name }}
{{- $drain := $root.Values.drain }}
{{- $named := include "watertight.callers" (list $root $name) | fromYamlArray }}
{{- $preStop := ternary (int (ternary $drain.preStopNamed $drain.preStop (gt (len $named) 0))) 0 (gt (int $drain.delay) 0) }}
{{- $labels := list $root $name (include "watertight.component" $process) -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" $labels | nindent 4 }}
spec:
  {{- if not $root.Values.autoscaling.enabled }}
  replicas: {{ include "watertight.replicas" . }}
  {{- end }}
  minReadySeconds: {{ $root.Values.rollout.minReadySeconds }}
  revisionHistoryLimit: 5
  progressDeadlineSeconds: {{ add 300 (int $root.Values.rollout.minReadySeconds) }}
  selector:
    matchLabels:
      {{- include "watertight.selector" $labels | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels:
        {{- include "watertight.labels" $labels | nindent 8 }}
        watertight.example.com/metrics: "true"
      annotations:
        checksum/config: {{ include "watertight.configMap" . | sha256sum }}
        {{- if $root.Values.secrets.create }}
        checksum/secret: {{ include "watertight.secret" . | sha256sum }}
        {{- end }}
        {{- if and $root.Values.envoy.enabled $process.calls $process.http }}
        checksum/envoy: {{ include "watertight.envoyConfig" $root | sha256sum }}
        {{- end }}
        {{- with $root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with include "watertight.placement" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      # preStop + DRAIN_DELAY + DRAIN_TIMEOUT + 2 s to close everything, and some air.
      terminationGracePeriodSeconds: {{ add $preStop (int $drain.delay) (int $drain.timeout) 8 }}
      securityContext:
        {{- include "watertight.podSecurity" 65532 | nindent 8 }}
      topologySpreadConstraints:
        {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - topologyKey: {{ . }}
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "watertight.selector" $labels | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
        {{- end }}
      {{- if and $root.Values.envoy.enabled $process.calls $process.http }}
      initContainers:
        {{- include "watertight.envoySidecar" $root | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ $name }}
          image: {{ include "watertight.image" (list $root $process.image) }}
          imagePullPolicy: {{ $root.Values.images.pullPolicy }}
          envFrom:
            - configMapRef: {name: {{ $name }}}
          env:
            - {name: GOMEMLIMIT, value: {{ include "watertight.goMemoryLimit" $own.resources.limits.memory | quote }}}
            - name: INSTANCE_ID
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
            - name: OTEL_RESOURCE_ATTRIBUTES
              value: {{ printf "service.instance.id=$(INSTANCE_ID),service.namespace=watertight,service.version=%s,k8s.namespace.name=%s,k8s.pod.name=$(INSTANCE_ID),k8s.node.name=$(NODE_NAME)" $root.Chart.AppVersion $root.Release.Namespace | quote }}
            {{- range include "watertight.secretVariables" (list $root $name $process) | fromYamlArray }}
            {{- $ref := get (get $own "secretRefs" | default dict) . | default dict }}
            - name: {{ . }}
              valueFrom: {secretKeyRef: {name: {{ $ref.name | default $name }}, key: {{ $ref.key | default . }}}}
            {{- end }}
          ports:
            {{- range $port, $number := include "watertight.ports" $process | fromYaml }}
            - {name: {{ $port }}, containerPort: {{ $number }}, protocol: TCP}
            {{- end }}
          # Started means that it listens. Whether it takes traffic is for readiness, and no dependency can restart it.
          startupProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 1
            timeoutSeconds: 2
            failureThreshold: 60
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 2
          livenessProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          {{- if $preStop }}
          lifecycle:
            preStop: {sleep: {seconds: {{ $preStop }}}}
          {{- end }}
          resources:
            {{- toYaml $own.resources | nindent 12 }}
          securityContext:
            {{- include "watertight.containerSecurity" $root | nindent 12 }}
          {{- if $root.Values.mtls.enabled }}
          volumeMounts:
            {{- include "watertight.tlsMount" $name | nindent 12 }}
          {{- end }}
      {{- if $root.Values.mtls.enabled }}
      volumes:
        {{- include "watertight.tlsVolume" $name | nindent 8 }}
      {{- else if and $root.Values.envoy.enabled $process.calls $process.http }}
      volumes:
        {{- include "watertight.envoyVolume" $root | nindent 8 }}
      {{- end }}
{{- end }}

{{- define "watertight.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 1 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- include "watertight.labels" (list (index . 0) (index . 1) (index . 2)) | nindent 4 }}
automountServiceAccountToken: false
{{- end }}

{{/*
watertight.grpcService: headless, because a gRPC client keeps its connections: it must see every address and spread its calls
itself. recs keeps its addresses while its pods crash, so that the callers' breakers see the failures, and not a name that
cannot be resolved.
*/}}
{{- define "watertight.grpcService" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $labels := list $root $name (include "watertight.component" (index . 2)) -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" $labels | nindent 4 }}
spec:
  clusterIP: None
  {{- if eq $name "recs" }}
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "watertight.selector" $labels | nindent 4 }}
  ports:
    - {name: grpc, port: 50051, targetPort: grpc, protocol: TCP, appProtocol: grpc}
{{- end }}

{{/* watertight.httpService: the shop's address, whichever process has it. */}}
{{- define "watertight.httpService" -}}
{{- $root := index . 0 }}
{{- $service := $root.Values.gateway.service -}}
apiVersion: v1
kind: Service
metadata:
  name: gateway
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" (list $root (index . 1) "edge") | nindent 4 }}
spec:
  type: {{ $service.type }}
  selector:
    {{- include "watertight.selector" . | nindent 4 }}
  ports:
    - name: http
      port: {{ $service.port }}
      targetPort: http
      protocol: TCP
      {{- if and $service.nodePort (ne $service.type "ClusterIP") }}
      nodePort: {{ $service.nodePort }}
      {{- end }}
{{- end }}

{{/* watertight.disruptionBudget lets one pod go at a time, and those that are sick at any time: a node can always be drained. */}}
{{- define "watertight.disruptionBudget" -}}
{{- $root := index . 0 }}
{{- $labels := list $root (index . 1) (index . 2) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" $labels | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "watertight.selector" $labels | nindent 6 }}
{{- end }}

{{- define "watertight.autoscaler" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "watertight.labels" (list $root $name (include "watertight.component" (index . 2))) | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $name }}}
  minReplicas: {{ include "watertight.replicas" . }}
  maxReplicas: {{ include "watertight.maxReplicas" . }}
  metrics:
    - type: ContainerResource
      containerResource:
        name: cpu
        container: {{ $name }}
        target: {type: Utilization, averageUtilization: {{ int $root.Values.autoscaling.targetCPUUtilization }}}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 300
      policies:
        - {type: Pods, value: 1, periodSeconds: 60}
{{- end }}
