{{/* Client pods of the service: the tests and the schema job. */}}
{{- define "portolan.adminUrl" -}}
{{ include "portolan.scheme" (list . "admin") }}://{{ include "portolan.adminHost" . }}:{{ .Values.admin.service.port }}
{{- end -}}

{{/* Not empty if there are schemas to apply. */}}
{{- define "portolan.hasSchemas" -}}
{{- if or .Values.schemas.databases .Values.schemas.existingConfigMap }}true{{ end -}}
{{- end -}}

{{/* The key that they send, and the CA that they trust. Takes (list $ values); the values have
     existingSecret and secretKey. */}}
{{- define "portolan.clientEnvironment" -}}
{{- $values := index . 1 -}}
{{- with $values.existingSecret }}
- name: PORTOLAN_KEY
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $values.secretKey }}
{{- end }}
{{- if (index . 0).Values.tls.authority.existingSecret }}
- name: SSL_CERT_FILE
  value: /etc/portolan/authority/ca.crt
{{- end }}
{{- end -}}

{{- define "portolan.clientMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.tls.authority.existingSecret }}
- name: authority
  mountPath: /etc/portolan/authority
  readOnly: true
{{- end }}
{{- end -}}

{{- define "portolan.clientVolumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- with .Values.tls.authority }}
{{- if .existingSecret }}
# Only the certificates: the Secret may also hold a private key.
- name: authority
  secret:
    secretName: {{ .existingSecret }}
    items: [{key: {{ .secretKey }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- end -}}
