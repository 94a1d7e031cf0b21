{{/*
What the shop consists of in each design. Everything else is derived from these tables.
*/}}

{{/*
watertight.processes: the design's processes by name, as YAML:
  image     which of .Values.images it runs
  http      it has the shop's address
  holds     the services in it, each with a database; prefix says that their variables carry the service's name
  calls     the services it calls
  user      the broker's user that it is
  env       what the design sets
*/}}
{{- define "watertight.processes" -}}
{{- if eq .Values.design "split" }}
gateway: {image: gateway, http: true, holds: [], calls: [checkout, search, recs], user: gateway}
checkout: {image: checkout, holds: [checkout], calls: {{ if ne (dig "RECS_IN_CHECKOUT" "off" .Values.services.checkout.env | toString) "off" }}[recs]{{ else }}[]{{ end }}, user: checkout}
search: {image: search, holds: [search], calls: [], user: search}
recs: {image: recs, holds: [recs], calls: [], user: recs}
inventory: {image: inventory, holds: [inventory], calls: [], user: inventory}
payment: {image: payment, holds: [payment], calls: [], user: payment}
{{- else if eq .Values.design "roles" }}
gateway:
  {image: monolith, http: true, holds: [], calls: [checkout, search, recs], user: monolith, env: {FEATURES: none}}
{{- range $name, $holds := dict "checkout" (list "checkout" "inventory" "payment") "search" (list "search") "recs" (list "recs") }}
{{ $name }}:
  {image: monolith, holds: {{ toJson $holds }}, prefix: true, calls: [], user: monolith, env: {FEATURES: {{ $name }}, POOLS: per-feature, POOL_SIZE: 16}}
{{- end }}
{{- else }}
monolith:
  {image: monolith, http: true, holds: [checkout, search, recs, inventory, payment], prefix: true, oneDatabase: true, calls: [], user: monolith,
  {{- if eq .Values.design "shared-pool" }}
  # The article's monolith: whoever asks gives up after a second, and until then everybody may wait.
  env: {POOLS: shared, POOL_SIZE: 16, POOL_QUEUE: 100000, CHECKOUT_TIMEOUT: 1s, SEARCH_TIMEOUT: 1s, RECS_TIMEOUT: 1s}}
  {{- else }}
  env: {POOLS: per-feature, POOL_SIZE: 16}}
  {{- end }}
{{- end }}
{{- end }}

{{/* watertight.callers: the processes that call a process, as a YAML list. (list root name) */}}
{{- define "watertight.callers" -}}
{{- $name := index . 1 }}
{{- $callers := list }}
{{- range $caller, $process := include "watertight.processes" (index . 0) | fromYaml }}
{{- if has $name $process.calls }}{{ $callers = append $callers $caller }}{{ end }}
{{- end }}
{{- toYaml $callers }}
{{- end }}

{{/* watertight.ports: the container ports of a process, by name. (process) */}}
{{- define "watertight.ports" -}}
{{- if .http }}
http: 8080
{{- end }}
{{- if .holds }}
grpc: 50051
{{- end }}
admin: {{ if .http }}9080{{ else }}9090{{ end }}
{{- end }}

{{/*
watertight.importTargets: at which process each service takes imports, by service. (root)
*/}}
{{- define "watertight.importTargets" -}}
{{- range $name, $process := include "watertight.processes" . | fromYaml }}
{{- range $process.holds }}
{{- if ne . "payment" }}
{{ . }}: {{ $name }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
watertight.databases: the design's databases by name, as YAML: services, processes, and how many connections its role and
its owner's role may hold. Every replica counts with all its pools, and one more for the surge of a rollout, and all of them
twice, because each may be there still, and take calls, while its successor does; a migration takes a connection for its
lock and up to two for its work. (root)
*/}}
{{- define "watertight.databases" -}}
{{- $root := . }}
{{- range $name, $process := include "watertight.processes" . | fromYaml }}
{{- $env := include "watertight.env" (list $root $name $process) | fromYaml }}
{{- $others := add (get $env "RELAY_DB_MAX_CONNS" | default 2 | int) (get $env "CONSUMER_DB_MAX_CONNS" | default 4 | int) }}
{{- $replicas := add1 (include "watertight.maxReplicas" (list $root $name) | int) }}
{{- $owner := mul 3 $replicas }}
{{- $sum := 0 }}
{{- range $process.holds }}
{{- $main := get $env "DB_MAX_CONNS" | default 16 }}
{{- if $process.prefix }}{{/* the monolith has one for each worker and two more */}}
{{- $main = get $env (printf "%s_DB_MAX_CONNS" (upper .)) | default (add (get $env "POOL_SIZE" | int) 2) }}
{{- end }}
{{- $service := mul 2 $replicas (add (int $main) $others) }}
{{- $sum = add $sum $service }}
{{- if not $process.oneDatabase }}
{{ . }}: {services: [{{ . }}], schemas: false, connections: {{ $service }}, ownerConnections: {{ $owner }}}
{{- end }}
{{- end }}
{{- if $process.oneDatabase }}
{{ $name }}: {services: {{ toJson $process.holds }}, schemas: true, connections: {{ $sum }}, ownerConnections: {{ mul $owner (len $process.holds) }}}
{{- end }}
{{- end }}
{{- end }}

{{/* watertight.maxReplicas: how many replicas of a process there may be, a rollout's surge apart. (list root name) */}}
{{- define "watertight.maxReplicas" -}}
{{- $root := index . 0 }}
{{- $replicas := include "watertight.replicas" . | int }}
{{- if $root.Values.autoscaling.enabled }}{{ max $replicas $root.Values.autoscaling.maxReplicas }}{{ else }}{{ $replicas }}{{ end }}
{{- end }}

{{/* watertight.replicas (list root name) */}}
{{- define "watertight.replicas" -}}
{{- $root := index . 0 }}
{{- dig (index . 1) "replicas" $root.Values.replicas $root.Values.services | int }}
{{- end }}

{{/*
watertight.checkConnections fails when the databases' connections do not fit into their servers. 20 are for the
administrator, lab and the probes. (root)
*/}}
{{- define "watertight.checkConnections" -}}
{{- $limit := int .Values.postgres.maxConnections }}
{{- $sum := 20 }}
{{- range $name, $database := include "watertight.databases" . | fromYaml }}
{{- $own := add $database.connections $database.ownerConnections }}
{{- $sum = add $sum $own }}
{{- if and (not $.Values.postgres.enabled) (ge (add 20 $own | int) $limit) }}
{{- fail (printf "database %s: its replicas may hold %d connections and 20 are reserved, but postgres.maxConnections says that its server has %d; raise it (and the server's max_connections), or lower services.*.env.DB_MAX_CONNS or the replicas" $name $own $limit) }}
{{- end }}
{{- end }}
{{- if and .Values.postgres.enabled (ge (int $sum) $limit) }}
{{- fail (printf "all replicas together may hold %d database connections, but postgres.maxConnections is %d; raise it, or lower services.*.env.DB_MAX_CONNS or the replicas" $sum $limit) }}
{{- end }}
{{- end }}
