// Names the version of the Prometheus operator whose definitions the story tests apply manifests against.
// See tests/README.md; tests/parts/provide gets them.
module github.com/muster-dev/muster/tests/peers/prometheus-operator

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
