{{/*
Parts that several templates have. What both services have in common is here; what differs is handed over.
*/}}

{{/* Labels of all objects. */}}
{{- define "streams-operator.labels" -}}
app.kubernetes.io/part-of: streams-operator
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The name of a cluster-wide object: (list $ NAME). */}}
{{- define "streams-operator.clusterName" -}}
{{- index . 1 }}{{ (index . 0).Values.rbac.clusterNameSuffix }}
{{- end }}

{{/* The image of a service: (list $ VALUES). */}}
{{- define "streams-operator.image" -}}
{{- $image := (index . 1).image -}}
{{- $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end }}

{{/* A host at which something listens, as it stands before a port. */}}
{{- define "streams-operator.listen" -}}
{{- if contains ":" .Values.listenAddress }}[{{ .Values.listenAddress }}]{{ else }}{{ .Values.listenAddress }}{{ end }}
{{- end }}

{{/*
Options as arguments. Numbers in values are floating-point numbers, and large ones would be written with an exponent.
*/}}
{{- define "streams-operator.options" -}}
{{- range $name, $value := . }}
{{- range $one := (kindIs "slice" $value | ternary $value (list $value)) }}
{{- if kindIs "bool" $one }}
{{- if $one }}
- --{{ $name }}
{{- end }}
{{- else if and (kindIs "float64" $one) (eq (floor $one) $one) }}
- --{{ $name }}={{ int64 $one }}
{{- else }}
- {{ printf "--%s=%v" $name $one | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where pods of a service run: (dict "values" VALUES "name" NAME). */}}
{{- define "streams-operator.placement" -}}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $own := dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" $.name)) }}
  - {{- toYaml (merge (deepCopy .) (hasKey . "labelSelector" | ternary dict $own)) | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The metadata of pods of a service: (dict "values" VALUES "name" NAME). */}}
{{- define "streams-operator.podMetadata" -}}
labels:
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  app.kubernetes.io/name: {{ .name }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The budget of a service: (dict "root" $ "values" VALUES "name" NAME). */}}
{{- define "streams-operator.podDisruptionBudget" -}}
{{- if .values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "streams-operator.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
{{- end }}
{{- end }}
