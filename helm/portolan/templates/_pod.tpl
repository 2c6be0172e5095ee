{{/* Pod fields for Portolan's images, with the service account. */}}
{{- define "portolan.pod" -}}
serviceAccountName: {{ include "portolan.serviceAccount" . }}
{{ include "portolan.closedPod" . }}
{{- end -}}

{{/* The same without the service account. */}}
{{- define "portolan.closedPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "portolan.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* A variable from the Secret. Takes (list $ variable key). */}}
{{- define "portolan.secret" -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef:
      name: {{ (index . 0).Values.secrets.existingSecret }}
      key: {{ index . 2 }}
{{- end -}}

{{/* Environment of the API, the workers and the check. */}}
{{- define "portolan.environment" -}}
- name: PORTOLAN_HOST
  value: "0.0.0.0"
- name: PORTOLAN_ADMIN_HOST
  value: "0.0.0.0"
- name: PORTOLAN_DATA_DIR
  value: /var/lib/portolan
{{- if .Values.worker.enabled }}
- name: PORTOLAN_JOBS_DIR
  value: /var/lib/portolan-jobs
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{ include "portolan.databases" . }}
{{- include "portolan.purging" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "portolan.databases" -}}
{{- if .Values.trial.enabled -}}
{{ include "portolan.trialDatabases" . }}
{{- else -}}
{{- $keys := .Values.secrets.keys -}}
{{ include "portolan.secret" (list . "PORTOLAN_CATALOGUE_URL" $keys.catalogueUrl) }}
{{- with $keys.coordinationUrl }}
{{ include "portolan.secret" (list $ "PORTOLAN_COORDINATION_URL" .) }}
{{- end }}
{{- with $keys.systems }}
{{ include "portolan.secret" (list $ "PORTOLAN_SYSTEMS" .) }}
{{- end }}
{{- with $keys.sketchUrl }}
{{ include "portolan.secret" (list $ "PORTOLAN_SKETCH_URL" .) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The caches to purge. Each Varnish replica has a host name, because each has its own cache;
     Kubernetes substitutes the token, so no manifest contains it. */}}
{{- define "portolan.purging" -}}
{{- if .Values.varnish.enabled }}
- name: PORTOLAN_PURGE_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .Values.varnish.existingSecret }}
      key: {{ .Values.varnish.secretKey }}
{{- $name := include "portolan.name" . }}
{{- $targets := list }}
{{- range $index := until (int .Values.varnish.replicas) }}
{{- $at := printf "http://%s-varnish-%d.%s-varnish-pods.%s.svc:8080" $name $index $name $.Release.Namespace }}
{{- $targets = append $targets (dict "name" (printf "varnish-%d" $index) "kind" "varnish" "at" $at "token" "$(PORTOLAN_PURGE_TOKEN)") }}
{{- end }}
- name: PORTOLAN_PURGE
  value: {{ toJson $targets | quote }}
{{- else if and .Values.secrets.keys.purge (not .Values.trial.enabled) }}
{{ include "portolan.secret" (list . "PORTOLAN_PURGE" .Values.secrets.keys.purge) }}
{{- end }}
{{- end -}}

{{/* Takes (list $ scratch-size). */}}
{{- define "portolan.scratchVolumes" -}}
- name: data
  emptyDir:
    sizeLimit: {{ index . 1 }}
- name: tmp
  emptyDir:
    sizeLimit: {{ index . 1 }}
{{- with (index . 0).Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "portolan.scratchMounts" -}}
- name: data
  mountPath: /var/lib/portolan
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Takes (list $ scratch-size). */}}
{{- define "portolan.volumes" -}}
{{- $top := index . 0 -}}
{{ include "portolan.scratchVolumes" . }}
{{- if $top.Values.worker.enabled }}
- name: jobs
  persistentVolumeClaim:
    claimName: {{ $top.Values.worker.jobs.existingClaim | default (printf "%s-jobs" (include "portolan.name" $top)) }}
{{- end }}
{{- end -}}

{{- define "portolan.mounts" -}}
{{ include "portolan.scratchMounts" . }}
{{- if .Values.worker.enabled }}
- name: jobs
  mountPath: /var/lib/portolan-jobs
{{- end }}
{{- end -}}

{{/* An HTTP probe. Takes (list $ path). */}}
{{- define "portolan.question" -}}
httpGet: {path: {{ index . 1 }}, port: admin, scheme: {{ include "portolan.scheme" (list (index . 0) "admin") | upper }}}
{{- end -}}

{{/* TLS certificates of the ports. Whole Secrets are mounted: a subPath mount misses renewals. */}}
{{- define "portolan.tlsEnvironment" -}}
{{- range $port, $prefix := dict "data" "PORTOLAN_TLS" "admin" "PORTOLAN_ADMIN_TLS" }}
{{- if (index $.Values.tls $port).existingSecret }}
- name: {{ $prefix }}_CERTIFICATE
  value: /etc/portolan/tls/{{ $port }}/tls.crt
- name: {{ $prefix }}_KEY
  value: /etc/portolan/tls/{{ $port }}/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{- define "portolan.tlsMounts" -}}
{{- range $port := list "data" "admin" }}
{{- if (index $.Values.tls $port).existingSecret }}
- name: tls-{{ $port }}
  mountPath: /etc/portolan/tls/{{ $port }}
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "portolan.tlsVolumes" -}}
{{- range $port := list "data" "admin" }}
{{- with (index $.Values.tls $port).existingSecret }}
- name: tls-{{ $port }}
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end -}}
