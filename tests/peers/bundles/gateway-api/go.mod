// Names the version of the Gateway API whose definitions the story tests apply. See tests/README.md; ../build gets them.
module github.com/muster-dev/muster/tests/peers/bundles/gateway-api

go 1.24.0

require sigs.k8s.io/gateway-api v1.3.0
