{{/* Checks beyond the JSON schema. All errors are reported at once. */}}
{{- define "portolan.mistakes" -}}
{{- $v := .Values -}}
{{- if and (not $v.trial.enabled) (not $v.secrets.existingSecret) }}
- secrets.existingSecret: name the Secret that holds the URLs of the databases, or set trial.enabled.
{{- end }}
{{- if and (not $v.trial.enabled) $v.networkPolicy.enabled (not $v.stores) }}
- stores: declare the databases, or no pod can reach them.
{{- end }}
{{- if and $v.trial.enabled $v.secrets.existingSecret }}
- trial.enabled: excludes secrets.existingSecret; set only one.
{{- end }}
{{- if and $v.varnish.enabled (not $v.varnish.existingSecret) }}
- varnish.existingSecret: name the Secret that holds the purge token.
{{- end }}
{{- if and $v.varnish.enabled $v.secrets.keys.purge }}
- secrets.keys.purge: leave it empty; the chart configures purging for its own Varnish.
{{- end }}
{{- if and $v.varnish.enabled $v.tls.data.existingSecret }}
- tls.data.existingSecret: Varnish cannot use TLS to the API; terminate TLS at the Ingress or gateway.
{{- end }}
{{- if and $v.worker.enabled (not $v.worker.jobs.existingClaim) (not $v.worker.jobs.size) }}
- worker.jobs: name an existingClaim, or set size to create one; API and workers share it.
{{- end }}
{{- $spark := get $v.settings "PORTOLAN_SPARK" | default "local" }}
{{- $cluster := not (or (hasPrefix "local" $spark) (hasPrefix "sc://" $spark)) }}
{{- if and $cluster $v.worker.enabled $v.networkPolicy.enabled (not $v.networkPolicy.executors) }}
- networkPolicy.executors: select the executors of the cluster in settings.PORTOLAN_SPARK, which connect to the driver in a worker; local and sc:// masters need none.
{{- end }}
{{- $schemas := $v.schemas }}
{{- if and $schemas.databases $schemas.existingConfigMap }}
- schemas: set databases or existingConfigMap, not both.
{{- end }}
{{- if and (include "portolan.hasSchemas" .) (not $schemas.existingSecret) }}
- schemas.existingSecret: name the Secret that holds a key with the scope schema; install without schemas, create the key, upgrade with both.
{{- end }}
{{- if eq (get $v.settings "PORTOLAN_AUTHENTICATION") "off" }}
- settings.PORTOLAN_AUTHENTICATION: remove it; without authentication the service listens only on loopback, and no pod starts.
{{- end }}
{{- if ge (int $schemas.waitSeconds) (int $schemas.deadlineSeconds) }}
- schemas.deadlineSeconds: must exceed waitSeconds.
{{- end }}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) }}
- ingress.hosts: name a host.
{{- end }}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.gateways) }}
- httpRoute.gateways: name a gateway.
{{- end }}
{{- if lt (int $v.api.terminationGracePeriodSeconds) (add (int $v.api.drainSeconds) 15) }}
- api.terminationGracePeriodSeconds: must be at least drainSeconds + 15, to complete requests.
{{- end }}
{{- $drain := get $v.settings "PORTOLAN_WORKER_DRAIN_S" | default 20 }}
{{- if and $v.worker.enabled (le (float64 $v.worker.terminationGracePeriodSeconds) (float64 $drain)) }}
- worker.terminationGracePeriodSeconds: must exceed PORTOLAN_WORKER_DRAIN_S.
{{- end }}
{{- if and $v.api.podDisruptionBudget.minAvailable $v.api.podDisruptionBudget.maxUnavailable }}
- api.podDisruptionBudget: set minAvailable or maxUnavailable, not both.
{{- end }}
{{- $scaled := $v.api.autoscaling.enabled }}
{{- if and $scaled (gt (int $v.api.autoscaling.minReplicas) (int $v.api.autoscaling.maxReplicas)) }}
- api.autoscaling.maxReplicas: must be at least minReplicas.
{{- end }}
{{- if and $scaled (not (dig "requests" "cpu" "" $v.api.resources)) }}
- api.resources.requests.cpu: required by autoscaling.
{{- end }}
{{- $monitor := $v.metrics.serviceMonitor }}
{{- if and $monitor.enabled (not $v.access.metricsOpen) (not $monitor.existingSecret) }}
- metrics.serviceMonitor.existingSecret: name the Secret that holds a key with the scope read, as access.metricsOpen is false.
{{- end }}
{{- $many := or $scaled (gt (int $v.api.replicas) 1) }}
{{- if and (or $many $v.worker.enabled) (eq (get $v.settings "PORTOLAN_SKETCH") "memory") }}
- settings.PORTOLAN_SKETCH: memory allows only one replica, without workers.
{{- end }}
{{- if and $many (not $v.trial.enabled) (not $v.secrets.keys.coordinationUrl) }}
- secrets.keys.coordinationUrl: several replicas need a coordination Redis.
{{- end }}
{{- end -}}

{{- define "portolan.validate" -}}
{{- with include "portolan.mistakes" . | trim -}}
{{- fail (printf "\n\nInvalid values:\n%s\n" .) -}}
{{- end -}}
{{- end -}}
