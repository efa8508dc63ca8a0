//! Works that are applied for a service account. Upstream's rows (X) are told in `tests/stories`.

use super::*;

/// A manifest that is refused for another reason must not be a way around the check.
#[actix::test]
async fn values_that_the_executor_may_not_read_are_withheld_whatever_else_is_wrong() {
    let world = World::lenient().await;
    let existing = config_map("cm1", json!({"a": "hush"}));
    let _: Value = world.spoke.create(cm("cm1"), &existing).await.unwrap();
    for strategy in ["ReadOnly", "Update", "Nonsense"] {
        let name = strategy.to_lowercase();
        let mut spec = workload([config_map("cm1", json!({"a": "b"}))]);
        spec["executor"] = json!({"subject": {
            "type": "ServiceAccount", "serviceAccount": {"namespace": "ns1", "name": "sa"},
        }});
        spec["manifestConfigs"] = json!([{
            "resourceIdentifier": {"resource": "configmaps", "namespace": "ns1", "name": "cm1"},
            "updateStrategy": {"type": strategy},
            "feedbackScrapeType": "Watch",
            "feedbackRules": [{
                "type": "JSONPaths", "jsonPaths": [{"name": "a", "path": ".data.a"}],
            }],
        }]);
        world.create_work(&name, spec).await;
        let work = world
            .work(&name, |work| current(work, WORK_APPLIED, "False"))
            .await;
        assert_eq!(values(&work, 0), [], "{strategy}");
        assert_eq!(
            message(&work, 0, "StatusFeedbackSynced"),
            "Sync status feedback failed with error system:serviceaccount:ns1:sa has no \
             permission to get configmaps cm1",
            "{strategy}"
        );
    }
    assert_eq!(world.get(cm("cm1")).await.unwrap()["data"]["a"], "hush");
    // Nor does a watch show it.
    assert_eq!(world.spoke_tap.watches("configmaps"), 0);
    world
        .merge(cm("cm1"), json!({"data": {"a": "secret"}}))
        .await;
    world.polls(1).await;
    let work = world.works().get("readonly").await.unwrap();
    assert_eq!(values(&work, 0), []);
    world.end().await;
}
