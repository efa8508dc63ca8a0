//! Group D and the rows of W about deletion: what goes, what stays, and what is waited for.
//!
//! | Rows | Story |
//! |---|---|
//! | W30, W31 | `w30_w31_a_held_object_that_left_the_spec_goes_when_it_is_let_go` |
//! | W32, W33, C091 | `w32_w33_a_deletion_waits_for_held_objects_and_says_so` |
//! | D01, D02, C087 | `d01_d02_an_object_of_two_works_goes_with_the_last` |
//! | D03 | `d03_an_object_of_two_works_stays_when_one_drops_it` |
//! | D04, D05 | `d04_d05_orphans_stay` |
//! | D06–D08, C093 | `d06_d08_selected_orphans_stay` |
//! | D09, D10 | `d09_d10_orphans_are_owned_again` |
//! | C080 | `a_manifest_removed_right_after_creation_leaves_nothing_behind` |
//! | C088 | `another_version_of_a_type_is_the_same_object` |

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::basic::Guestbook;
use crate::support::agent::Agent;
use crate::support::live::{HOLD, owners};
use crate::support::works::{manifests, work_condition};
use crate::support::{Story, World};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        w30_w31_a_held_object_that_left_the_spec_goes_when_it_is_let_go,
        w32_w33_a_deletion_waits_for_held_objects_and_says_so,
        an_agent_killed_in_the_middle_of_a_deletion_ends_it_when_it_is_back,
        d01_d02_an_object_of_two_works_goes_with_the_last,
        d03_an_object_of_two_works_stays_when_one_drops_it,
        d04_d05_orphans_stay,
        d06_d08_selected_orphans_stay,
        d09_d10_orphans_are_owned_again,
        a_manifest_removed_right_after_creation_leaves_nothing_behind,
        another_version_of_a_type_is_the_same_object,
    ]
}

const NAMES: [&str; 3] = ["cm1", "cm2", "cm3"];

fn config_maps<const N: usize>(agent: &Agent, names: [&str; N]) -> Value {
    manifests(names.map(|name| agent.config_map(name, json!({"a": "b"}))))
}

async fn hold_all(agent: &Agent) -> Result<()> {
    for name in NAMES {
        agent.cm(name).hold().await?;
    }
    Ok(())
}

async fn let_all_go(agent: &Agent) -> Result<()> {
    for name in NAMES {
        if agent.cm(name).find().await?.is_some() {
            agent.cm(name).let_go().await?;
        }
    }
    Ok(())
}

async fn w30_w31_a_held_object_that_left_the_spec_goes_when_it_is_let_go(
    world: World,
) -> Result<()> {
    let agent = Agent::start(&world).await?;
    // W31 waits until the work has settled before it drops cm1, W30 does not.
    for (work, settles) in [("settled", true), ("fresh", false)] {
        agent.create(work, config_maps(&agent, NAMES)).await?;
        if settles {
            agent.settled(work).await?;
        }
        for name in NAMES {
            agent.cm(name).appears().await?;
        }
        hold_all(&agent).await?;
        agent
            .edit(work, config_maps(&agent, ["cm2", "cm3"]))
            .await?;
        agent.cm("cm1").is_going().await?;
        agent.settled(work).await?;
        // As long as it is there, it is on record.
        let all = ["configmaps cm1", "configmaps cm2", "configmaps cm3"];
        agent.looks_again(work, 1).await?;
        agent.records(work, &all).await?;
        agent.cm("cm1").let_go().await?;
        agent.cm("cm1").disappears().await?;
        agent.records(work, &all[1..]).await?;

        let_all_go(&agent).await?;
        agent.work(work).delete().await?;
        agent.work(work).disappears().await?;
    }
    Ok(())
}

async fn w32_w33_a_deletion_waits_for_held_objects_and_says_so(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    agent.applied("work", config_maps(&agent, NAMES)).await?;
    hold_all(&agent).await?;
    agent.work("work").delete().await?;
    for name in NAMES {
        agent.cm(name).is_going().await?;
        let work = agent
            .work("work")
            .is("say what it waits for", |work| {
                work_condition(work, "Deleting").is_ok_and(|deleting| {
                    let message = deleting["message"].as_str().unwrap_or_default();
                    message.contains(&format!("/{name} (finalizer {HOLD})"))
                })
            })
            .await?;
        let deleting = work_condition(&work, "Deleting")?;
        ensure!(
            deleting["status"] == "True"
                && deleting["reason"] == "WorkDeleting"
                && deleting["observedGeneration"] == work["metadata"]["generation"],
            "{deleting}"
        );
        let message = deleting["message"].as_str().unwrap_or_default();
        ensure!(
            message.starts_with("ManifestWork is being deleted"),
            "{deleting}"
        );
        agent.record("work").is_going().await?;
        agent.cm(name).let_go().await?;
    }
    agent.work("work").disappears().await?;
    agent.record("work").is_absent().await
}

async fn an_agent_killed_in_the_middle_of_a_deletion_ends_it_when_it_is_back(
    world: World,
) -> Result<()> {
    let mut agent = Agent::start(&world).await?;
    agent.applied("work", config_maps(&agent, NAMES)).await?;
    agent.cm("cm2").hold().await?;
    agent.work("work").delete().await?;
    agent.cm("cm2").is_going().await?;
    agent.kill().await?;
    agent.cm("cm2").let_go().await?;
    agent.run().await?;
    agent.work("work").disappears().await?;
    agent.record("work").is_absent().await?;
    for name in NAMES {
        agent.cm(name).is_absent().await?;
    }
    Ok(())
}

async fn d01_d02_an_object_of_two_works_goes_with_the_last(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    agent.applied("first", config_maps(&agent, ["cm1"])).await?;
    agent
        .applied("second", config_maps(&agent, ["cm1"]))
        .await?;
    let uid = agent.cm("cm1").get().await?["metadata"]["uid"].clone();
    for work in ["first", "second"] {
        let entries = agent.records(work, &["configmaps cm1"]).await?;
        ensure!(entries[0]["uid"] == uid, "{entries:?}");
    }
    agent.work("first").delete().await?;
    agent.work("first").disappears().await?;
    agent.record("first").is_absent().await?;
    agent.looks_again("second", 2).await?;
    let live = agent.cm("cm1").get().await?;
    ensure!(live["metadata"]["uid"] == uid, "{live}");
    ensure!(owners(&live) == [agent.record_name("second")], "{live}");
    agent.records("second", &["configmaps cm1"]).await?;
    agent.work("second").delete().await?;
    agent.work("second").disappears().await?;
    agent.cm("cm1").is_absent().await
}

async fn d03_an_object_of_two_works_stays_when_one_drops_it(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let both = config_maps(&agent, ["cm1", "cm2"]);
    agent.applied("first", both).await?;
    agent
        .applied("second", config_maps(&agent, ["cm1"]))
        .await?;
    let uid = agent.cm("cm1").get().await?["metadata"]["uid"].clone();
    agent.edit("first", config_maps(&agent, ["cm2"])).await?;
    agent.records("first", &["configmaps cm2"]).await?;
    agent.looks_again("first", 2).await?;
    agent.looks_again("second", 2).await?;
    let live = agent.cm("cm1").get().await?;
    ensure!(
        live["metadata"]["uid"] == uid && owners(&live) == [agent.record_name("second")],
        "{live}"
    );
    Ok(())
}

/// cm1 and cm2, and how they are to be deleted.
fn with_option(agent: &Agent, option: Value) -> Value {
    let mut spec = config_maps(agent, ["cm1", "cm2"]);
    spec["deleteOption"] = option;
    spec
}

/// All but cm1 go.
fn orphan_cm1(agent: &Agent) -> Value {
    with_option(
        agent,
        json!({"propagationPolicy": "SelectivelyOrphan", "selectivelyOrphans": {
            "orphaningRules": [{"group": "", "resource": "configmaps",
                "namespace": agent.name(), "name": "cm1"}]}}),
    )
}

async fn is_owned(agent: &Agent, name: &str, owned: bool) -> Result<()> {
    let expected = if owned {
        vec![agent.record_name("work")]
    } else {
        vec![]
    };
    agent
        .cm(name)
        .is(&format!("be owned by {expected:?}"), |live| {
            owners(live) == expected
        })
        .await?;
    Ok(())
}

async fn d04_d05_orphans_stay(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let spec = with_option(&agent, json!({"propagationPolicy": "Orphan"}));
    agent.applied("work", spec).await?;
    for name in ["cm1", "cm2"] {
        is_owned(&agent, name, false).await?;
    }
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.record("work").is_absent().await?;
    agent.cm("cm1").get().await?;
    agent.cm("cm2").get().await?;
    Ok(())
}

async fn d06_d08_selected_orphans_stay(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    agent.applied("work", orphan_cm1(&agent)).await?;
    is_owned(&agent, "cm1", false).await?;
    is_owned(&agent, "cm2", true).await?;
    // D08 first: cm1 leaves the spec, and the cluster keeps it.
    agent.edit("work", config_maps(&agent, ["cm2"])).await?;
    agent.records("work", &["configmaps cm2"]).await?;
    agent.looks_again("work", 1).await?;
    agent.cm("cm1").get().await?;

    agent.edit("work", orphan_cm1(&agent)).await?;
    agent
        .records("work", &["configmaps cm1", "configmaps cm2"])
        .await?;
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.cm("cm2").is_absent().await?;
    let live = agent.cm("cm1").get().await?;
    ensure!(owners(&live).is_empty(), "{live}");
    Ok(())
}

async fn d09_d10_orphans_are_owned_again(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    agent.applied("work", orphan_cm1(&agent)).await?;
    is_owned(&agent, "cm1", false).await?;
    agent.edit("work", json!({"deleteOption": null})).await?;
    is_owned(&agent, "cm1", true).await?;
    is_owned(&agent, "cm2", true).await?;
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.cm("cm1").is_absent().await?;
    agent.cm("cm2").is_absent().await
}

async fn a_manifest_removed_right_after_creation_leaves_nothing_behind(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let works: Vec<_> = (0..20)
        .map(|n| (format!("work-{n}"), format!("a-{n}"), format!("b-{n}")))
        .collect();
    for (work, a, b) in &works {
        agent.create(work, config_maps(&agent, [a, b])).await?;
        agent.edit(work, config_maps(&agent, [b])).await?;
    }
    for (work, a, b) in &works {
        agent.settled(work).await?;
        agent.records(work, &[&format!("configmaps {b}")]).await?;
        agent.cm(a).disappears().await?;
    }
    Ok(())
}

async fn another_version_of_a_type_is_the_same_object(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let guestbook = Guestbook::new(&agent);
    let mut spec = guestbook.work(json!({}));
    let manifests = &mut spec["workload"]["manifests"];
    let mut old = manifests[0]["spec"]["versions"][0].clone();
    old["name"] = "v1beta1".into();
    old["storage"] = false.into();
    if let Some(versions) = manifests[0]["spec"]["versions"].as_array_mut() {
        versions.push(old);
    }
    let new = spec.clone();
    spec["workload"]["manifests"][1]["apiVersion"] =
        format!("{}/v1beta1", guestbook.group()).into();
    agent.applied("work", spec).await?;
    let uid = guestbook.live(&agent).get().await?["metadata"]["uid"].clone();

    agent.edit("work", new).await?;
    agent.settled("work").await?;
    let crd = format!("customresourcedefinitions guestbooks.{}", guestbook.group());
    let expected = [&crd, "guestbooks guestbook1"];
    let record = agent.record("work");
    record
        .is("list version v1", |record| {
            record["status"]["appliedResources"][1]["version"] == "v1"
        })
        .await?;
    agent.looks_again("work", 2).await?;
    agent.records("work", &expected).await?;
    let live = guestbook.live(&agent).get().await?;
    ensure!(live["metadata"]["uid"] == uid, "{live}");
    Ok(())
}
