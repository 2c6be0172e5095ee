{{/* What no schema can say. All mistakes are told at once. */}}
{{- define "portolan.mistakes" -}}
{{- $v := .Values -}}
{{- if and (not $v.trial.enabled) (not $v.secrets.existingSecret) }}
- secrets.existingSecret: name the Secret that holds the URLs of the databases, or set trial.enabled for a look.
{{- end }}
{{- if and (not $v.trial.enabled) $v.networkPolicy.enabled (not $v.stores) }}
- stores: say where the databases are, or no pod reaches any.
{{- end }}
{{- if and $v.trial.enabled $v.secrets.existingSecret }}
- trial.enabled: the trial stores and secrets.existingSecret exclude each other.
{{- end }}
{{- if and $v.varnish.enabled (not $v.varnish.existingSecret) }}
- varnish.existingSecret: name the Secret that holds the token of purges.
{{- end }}
{{- if and $v.varnish.enabled $v.secrets.keys.purge }}
- secrets.keys.purge: the chart says itself how its own Varnish is purged; leave it empty.
{{- end }}
{{- if and $v.varnish.enabled $v.tls.data.existingSecret }}
- tls.data.existingSecret: Varnish speaks no TLS to the API; let the Ingress or the gateway speak it.
{{- end }}
{{- if and $v.worker.enabled (not $v.worker.jobs.existingClaim) (not $v.worker.jobs.size) }}
- worker.jobs: name an existingClaim, or give the size of one; API and workers share it.
{{- end }}
{{- $spark := get $v.settings "PORTOLAN_SPARK" | default "local" }}
{{- $cluster := not (or (hasPrefix "local" $spark) (hasPrefix "sc://" $spark)) }}
{{- if and $cluster $v.worker.enabled $v.networkPolicy.enabled (not $v.networkPolicy.executors) }}
- networkPolicy.executors: name the executors of the cluster in settings.PORTOLAN_SPARK, which connect to the driver in a worker; local and sc:// masters have none.
{{- end }}
{{- $schemas := $v.schemas }}
{{- if and $schemas.databases $schemas.existingConfigMap }}
- schemas: name databases, or an existingConfigMap, not both.
{{- end }}
{{- if and (include "portolan.hasSchemas" .) (not $schemas.existingSecret) }}
- schemas.existingSecret: name the Secret that holds a key with the scope schema; install without schemas, create the key, upgrade with both.
{{- end }}
{{- if eq (get $v.settings "PORTOLAN_AUTHENTICATION") "off" }}
- settings.PORTOLAN_AUTHENTICATION: leave it out; without authentication the service listens on loopback only, and no pod starts.
{{- end }}
{{- if ge (int $schemas.waitSeconds) (int $schemas.deadlineSeconds) }}
- schemas.deadlineSeconds: more than waitSeconds.
{{- end }}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) }}
- ingress.hosts: name a host.
{{- end }}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.gateways) }}
- httpRoute.gateways: name a gateway.
{{- end }}
{{- if lt (int $v.api.terminationGracePeriodSeconds) (add (int $v.api.drainSeconds) 15) }}
- api.terminationGracePeriodSeconds: at least drainSeconds and 15 more, for requests to finish.
{{- end }}
{{- $drain := get $v.settings "PORTOLAN_WORKER_DRAIN_S" | default 20 }}
{{- if and $v.worker.enabled (le (float64 $v.worker.terminationGracePeriodSeconds) (float64 $drain)) }}
- worker.terminationGracePeriodSeconds: more than PORTOLAN_WORKER_DRAIN_S.
{{- end }}
{{- if and $v.api.podDisruptionBudget.minAvailable $v.api.podDisruptionBudget.maxUnavailable }}
- api.podDisruptionBudget: minAvailable or maxUnavailable, not both.
{{- end }}
{{- $scaled := $v.api.autoscaling.enabled }}
{{- if and $scaled (gt (int $v.api.autoscaling.minReplicas) (int $v.api.autoscaling.maxReplicas)) }}
- api.autoscaling.maxReplicas: no fewer than minReplicas.
{{- end }}
{{- if and $scaled (not (dig "requests" "cpu" "" $v.api.resources)) }}
- api.resources.requests.cpu: autoscaling measures against it.
{{- end }}
{{- $monitor := $v.metrics.serviceMonitor }}
{{- if and $monitor.enabled (not $v.access.metricsOpen) (not $monitor.existingSecret) }}
- metrics.serviceMonitor.existingSecret: name the Secret that holds a key with the scope read, as access.metricsOpen is false.
{{- end }}
{{- $many := or $scaled (gt (int $v.api.replicas) 1) }}
{{- if and (or $many $v.worker.enabled) (eq (get $v.settings "PORTOLAN_SKETCH") "memory") }}
- settings.PORTOLAN_SKETCH: a sketch in memory is for one replica alone, without workers.
{{- end }}
{{- if and $many (not $v.trial.enabled) (not $v.secrets.keys.coordinationUrl) }}
- secrets.keys.coordinationUrl: several replicas share a coordination Redis.
{{- end }}
{{- end -}}

{{- define "portolan.validate" -}}
{{- with include "portolan.mistakes" . | trim -}}
{{- fail (printf "\n\nThese values do not go together:\n%s\n" .) -}}
{{- end -}}
{{- end -}}
