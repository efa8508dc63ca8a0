// Names the version of Argo CD whose definitions the story tests apply. See tests/README.md; ../build gets them.
module github.com/muster-dev/muster/tests/peers/bundles/argo-cd

go 1.24.0

require github.com/argoproj/argo-cd/v3 v3.1.0
