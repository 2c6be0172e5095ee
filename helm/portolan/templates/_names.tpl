{{- define "portolan.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Immutable labels: a Deployment's selector cannot change. Takes (list $ component). */}}
{{- define "portolan.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ $top.Chart.Name }}
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object. Takes (list $ component). */}}
{{- define "portolan.labels" -}}
{{- $top := index . 0 -}}
{{ include "portolan.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: portolan
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_" }}
{{- with $top.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name and labels of an object. Takes (list $ component suffix). */}}
{{- define "portolan.metadata" -}}
{{- $top := index . 0 -}}
name: {{ include "portolan.name" $top }}{{ index . 2 }}
namespace: {{ $top.Release.Namespace }}
labels:
  {{- include "portolan.labels" (list $top (index . 1)) | nindent 2 }}
{{- end -}}

{{/* Takes (list $ image). */}}
{{- define "portolan.image" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "portolan.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "portolan.name" .) "default") -}}
{{- end -}}

{{/* An account that exists before an upgrade, which may still have to create the chart's own. */}}
{{- define "portolan.earlyAccount" -}}
{{- .Values.serviceAccount.create | ternary "default" (include "portolan.serviceAccount" .) -}}
{{- end -}}

{{/* The Service for clients: the cache if enabled. */}}
{{- define "portolan.front" -}}
{{ include "portolan.name" . }}{{ .Values.varnish.enabled | ternary "-varnish" "-api" }}
{{- end -}}

{{/* Host of the admin API. */}}
{{- define "portolan.adminHost" -}}
{{ include "portolan.name" . }}-admin.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Scheme of an API port. Takes (list $ port); port is data or admin. */}}
{{- define "portolan.scheme" -}}
{{- if (index (index . 0).Values.tls (index . 1)).existingSecret -}} https {{- else -}} http {{- end -}}
{{- end -}}

{{- define "portolan.frontScheme" -}}
{{- if .Values.varnish.enabled -}} http {{- else -}} {{ include "portolan.scheme" (list . "data") }} {{- end -}}
{{- end -}}

{{- define "portolan.frontPort" -}}
{{ .Values.varnish.enabled | ternary .Values.varnish.service.port .Values.api.service.port }}
{{- end -}}
