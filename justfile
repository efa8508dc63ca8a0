# Short names for commands that work without `just`, too.

# What must hold before a change lands: tests, format, lints, docs.
check:
    .ci/run

# Every test; arguments go to `cargo test`.
test *args:
    tests/run {{args}}

# The benches of the goals named, such as P4; all of them if none is.
bench *goals:
    benches/run {{goals}}

# Writes the definitions under deploy/crds anew from the types.
crds:
    UPDATE_CRDS=1 cargo test -p muster-api --test crds

# A rollout to simulated clusters; arguments go to `muster demo`.
demo *args:
    cargo run --release -- demo {{args}}
