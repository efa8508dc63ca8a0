// Names the version of cert-manager whose definitions the story tests apply. See tests/README.md; ../build gets them.
module github.com/muster-dev/muster/tests/peers/bundles/cert-manager

go 1.24.0

require github.com/cert-manager/cert-manager v1.18.2
