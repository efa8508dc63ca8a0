//! The values that are worth reporting for well-known kinds.

use std::sync::LazyLock;

use serde_json::Value;

use super::Wanted;
use crate::jsonpath::JsonPath;
use crate::manifest::Gvk;

struct Kind {
    gvk: Gvk<'static>,
    values: Vec<Wanted>,
}

/// The values of a kind, in the order they are reported; `None` for a kind that has none.
pub(super) fn values_of(gvk: Gvk<'_>) -> Option<&'static [Wanted]> {
    KINDS
        .iter()
        .find(|kind| kind.gvk == gvk)
        .map(|kind| kind.values.as_slice())
}

/// The values of a kind that is not listed here, as far as the object has them.
///
/// Differs from upstream, where any other kind is an error: here it is as the design of status
/// feedback says, which names these for every kind, and reports what does not exist not at all.
pub(super) fn common_values(object: &Value) -> impl Iterator<Item = (&'static str, i64)> {
    REPLICAS.iter().filter_map(|&(name, path)| {
        let field = path.strip_prefix(".status.")?;
        Some((name, object.get("status")?.get(field)?.as_i64()?))
    })
}

const REPLICAS: &[(&str, &str)] = &[
    ("ReadyReplicas", ".status.readyReplicas"),
    ("Replicas", ".status.replicas"),
    ("AvailableReplicas", ".status.availableReplicas"),
];

/// Upstream knows `Deployment`, `DaemonSet`, `Job` and `Pod`, in exactly these versions
/// (`pkg/work/spoke/statusfeedback/rules/rule.go`).
///
/// Differs from upstream: `StatefulSet`, `CronJob`, `PersistentVolumeClaim` and `Service` are
/// ours.
static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let apps = |kind| Gvk {
        group: "apps",
        version: "v1",
        kind,
    };
    let batch = |kind| Gvk {
        group: "batch",
        version: "v1",
        kind,
    };
    let core = |kind| Gvk {
        group: "",
        version: "v1",
        kind,
    };
    let replicas = REPLICAS;
    [
        (apps("Deployment"), replicas),
        (apps("StatefulSet"), replicas),
        (
            apps("DaemonSet"),
            &[
                ("NumberReady", ".status.numberReady"),
                ("DesiredNumberScheduled", ".status.desiredNumberScheduled"),
                ("NumberAvailable", ".status.numberAvailable"),
            ],
        ),
        (
            batch("Job"),
            &[
                (
                    "JobComplete",
                    r#".status.conditions[?(@.type=="Complete")].status"#,
                ),
                ("JobSucceeded", ".status.succeeded"),
            ],
        ),
        (
            batch("CronJob"),
            &[
                ("LastScheduleTime", ".status.lastScheduleTime"),
                ("LastSuccessfulTime", ".status.lastSuccessfulTime"),
            ],
        ),
        (
            core("Pod"),
            &[
                (
                    "PodReady",
                    r#".status.conditions[?(@.type=="Ready")].status"#,
                ),
                ("PodPhase", ".status.phase"),
            ],
        ),
        (core("PersistentVolumeClaim"), &[("Phase", ".status.phase")]),
        (
            core("Service"),
            &[
                ("LoadBalancerIP", ".status.loadBalancer.ingress[*].ip"),
                (
                    "LoadBalancerHostname",
                    ".status.loadBalancer.ingress[*].hostname",
                ),
            ],
        ),
    ]
    .into_iter()
    .map(|(gvk, values)| Kind {
        gvk,
        values: values.iter().map(|value| wanted(gvk, value)).collect(),
    })
    .collect()
});

fn wanted(gvk: Gvk<'static>, (name, path): &(&str, &str)) -> Wanted {
    Wanted {
        name: (*name).into(),
        version: String::new(),
        path: JsonPath::parse(path).map_err(|error| error.to_string()),
        // A load balancer with several addresses is known by its first.
        first_only: gvk.kind == "Service",
    }
}
