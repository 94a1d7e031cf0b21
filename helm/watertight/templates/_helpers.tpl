{{/*
Pieces that every object is made of. What takes more than the root gets (list root …).
*/}}

{{/* watertight.labels: the recommended labels. (list root name component) */}}
{{- define "watertight.labels" -}}
{{- $root := index . 0 -}}
{{ include "watertight.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ index . 2 }}
app.kubernetes.io/part-of: watertight
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end }}

{{/* watertight.selector: the two labels that never change, and so may select. (list root name …) */}}
{{- define "watertight.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end }}

{{/* watertight.image (list root image) */}}
{{- define "watertight.image" -}}
{{- $root := index . 0 }}
{{- $image := get $root.Values.images (index . 1) }}
{{- $repository := $image.repository }}
{{- if and $root.Values.images.registry (ne (index . 1) "postgres") }}
{{- $repository = printf "%s/%s" (trimSuffix "/" $root.Values.images.registry) $repository }}
{{- end }}
{{- printf "%s:%s" $repository ($image.tag | default $root.Chart.AppVersion) }}
{{- end }}

{{/* watertight.string: a value as it was written; a whole number read from YAML is a float to Helm. (value) */}}
{{- define "watertight.string" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end }}
{{- end }}

{{/*
watertight.goMemoryLimit: 85 % of a memory limit, in the Go runtime's notation: beyond it the collector works harder, and the
rest is for stacks, mapped files and what the runtime does not count. (quantity)
*/}}
{{- define "watertight.goMemoryLimit" -}}
{{- $number := trimSuffix "Mi" . | int }}
{{- if hasSuffix "Gi" . }}{{ $number = mul (trimSuffix "Gi" . | int) 1024 }}{{ end }}
{{- printf "%dMiB" (div (mul $number 85) 100) }}
{{- end }}

{{/* watertight.memoryBytes: a memory quantity in bytes. (quantity) */}}
{{- define "watertight.memoryBytes" -}}
{{- if hasSuffix "Gi" . }}{{ mul (trimSuffix "Gi" . | int) 1073741824 }}{{ else }}{{ mul (trimSuffix "Mi" . | int) 1048576 }}{{ end }}
{{- end }}

{{/* watertight.podSecurity: of a pod, for the profile "restricted". (user id) */}}
{{- define "watertight.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* watertight.containerSecurity: of a container, for the profile "restricted", and with a root that cannot be written. */}}
{{- define "watertight.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* watertight.placement: what .Values says about where every pod goes. (root) */}}
{{- define "watertight.placement" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* watertight.tlsMount and watertight.tlsVolume: a process's certificate. (name) */}}
{{- define "watertight.tlsMount" -}}
- {name: tls, mountPath: /etc/watertight/tls, readOnly: true}
{{- end }}
{{- define "watertight.tlsVolume" -}}
- name: tls
  secret: {secretName: {{ . }}-tls, defaultMode: 0440}
{{- end }}
{{- define "watertight.tlsEnv" -}}
TLS_CERT_FILE: /etc/watertight/tls/tls.crt
TLS_KEY_FILE: /etc/watertight/tls/tls.key
TLS_CA_FILE: /etc/watertight/tls/ca.crt
{{- end }}
