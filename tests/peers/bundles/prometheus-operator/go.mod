// Names the version of the Prometheus operator whose definitions the story tests apply. See tests/README.md; ../build gets them.
module github.com/muster-dev/muster/tests/peers/bundles/prometheus-operator

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
