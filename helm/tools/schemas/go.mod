// The kinds that are not Kubernetes' own: each of these modules carries their schemas. It stands
// apart from Helm's, whose versions they must not move.
module portolan/helm/tools/schemas

go 1.24.0

require (
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.4.1
)
