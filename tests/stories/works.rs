//! Works whose cluster changes under them: versions that go, another hub, two names for one object.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::live::{Live, owners};
use crate::support::works::{manifest_condition, manifests, work_condition};
use crate::support::{Story, World, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        a_deep_definition_is_applied_and_found_again,
        an_object_goes_through_another_version_when_its_own_is_not_served,
        a_record_of_the_hub_before_stays_until_the_new_owner_is_on_its_objects,
        what_is_not_available_is_counted_and_the_first_is_named,
    ]
}

/// A type whose objects may hold anything.
struct Type {
    group: String,
}

impl Type {
    fn new() -> Self {
        Self {
            group: format!("{}.example.org", unique_name("gears")),
        }
    }

    fn definition(&self, versions: &[(&str, bool)], schema: &Value) -> Value {
        let version = |(at, (name, served)): (usize, &(&str, bool))| {
            json!({"name": name, "served": served, "storage": at + 1 == versions.len(),
                "schema": {"openAPIV3Schema": schema}})
        };
        let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("gears.{}", self.group)},
            "spec": {
                "group": self.group, "scope": "Namespaced", "versions": versions,
                "names": {"kind": "Gear", "plural": "gears", "singular": "gear",
                    "listKind": "GearList"},
            },
        })
    }

    fn live(&self, agent: &Agent) -> Live {
        let name = format!("gears.{}", self.group);
        agent.object("customresourcedefinitions", &name)
    }

    fn gear(&self, agent: &Agent, version: &str) -> Live {
        let collection = format!(
            "/apis/{}/{version}/namespaces/{}/gears",
            self.group,
            agent.name()
        );
        Live::new(agent.spoke().rest(), &collection, "g")
    }
}

fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

async fn a_deep_definition_is_applied_and_found_again(world: World) -> Result<()> {
    let mut agent = Agent::start(&world).await?;
    let of = Type::new();
    let mut schema = json!({"type": "integer"});
    for _ in 0..30 {
        schema = json!({"type": "object", "properties": {"p": schema}});
    }
    let definition = of.definition(&[("v1", true)], &schema);
    let spec = manifests([definition, agent.config_map("cm1", json!({"a": "b"}))]);
    agent.applied("work", spec).await?;
    agent.kill().await?;
    agent.run().await?;
    agent.looks_again("work", 2).await?;
    agent.settled("work").await?;
    agent.says_ready(true).await?;
    let live = of.live(&agent).get().await?;
    ensure!(live["metadata"]["generation"] == 1, "{}", live["metadata"]);
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    of.live(&agent).is_absent().await
}

async fn an_object_goes_through_another_version_when_its_own_is_not_served(
    world: World,
) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let of = Type::new();
    let both = of.definition(&[("v1alpha1", true), ("v1", true)], &anything());
    of.live(&agent).create(&both).await?;
    let gear = json!({"apiVersion": format!("{}/v1alpha1", of.group), "kind": "Gear",
        "metadata": {"namespace": agent.name(), "name": "g"}});
    agent.applied("work", manifests([gear])).await?;
    let one = of.definition(&[("v1alpha1", false), ("v1", true)], &anything());
    of.live(&agent)
        .merge(json!({"spec": {"versions": one["spec"]["versions"]}}))
        .await?;
    // That it cannot be applied any more is no reason to remove it.
    agent.shows("work", &[("Applied", "F")]).await?;
    agent.looks_again("work", 2).await?;
    of.gear(&agent, "v1").get().await?;
    agent.records("work", &["gears g"]).await?;
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    of.gear(&agent, "v1").is_absent().await?;
    agent.record("work").is_absent().await?;
    of.live(&agent).delete().await
}

async fn a_record_of_the_hub_before_stays_until_the_new_owner_is_on_its_objects(
    world: World,
) -> Result<()> {
    let mut agent = Agent::prepare(&world, &[]).await?;
    agent.set("[agent]\neviction_grace = \"1s\"\nagent_id = \"the-agent\"\n");
    agent.run().await?;
    agent
        .applied(
            "work",
            manifests([agent.config_map("cm1", json!({"a": "b"}))]),
        )
        .await?;
    let (old, uid) = (agent.record_name("work"), uid(&agent).await?);
    agent.kill().await?;

    agent.move_hub().await?;
    // What the new work wants is refused: a value of data has to be a text.
    let mut refused = agent.config_map("cm1", json!({"a": "b"}));
    refused["data"]["a"] = 1.into();
    agent.edit("work", manifests([refused])).await?;
    agent.run().await?;
    agent.shows("work", &[("Applied", "F")]).await?;
    let evicting = |record: &Value| record["status"]["evictionStartTime"].is_string();
    agent
        .record_named(&old)
        .is("be evicted after its grace period", evicting)
        .await?;
    agent.looks_again("work", 8).await?;
    agent.record_named(&old).get().await?;

    agent
        .edit(
            "work",
            manifests([agent.config_map("cm1", json!({"a": "c"}))]),
        )
        .await?;
    agent.settled("work").await?;
    agent.record_named(&old).disappears().await?;
    let live = agent.cm("cm1").get().await?;
    ensure!(live["metadata"]["uid"] == uid, "made anew: {live}");
    ensure!(owners(&live) == [agent.record_name("work")], "{live}");
    Ok(())
}

async fn uid(agent: &Agent) -> Result<Value> {
    Ok(agent.cm("cm1").get().await?["metadata"]["uid"].clone())
}

async fn what_is_not_available_is_counted_and_the_first_is_named(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut all: Vec<Value> = (0..10)
        .map(|n| agent.config_map(&format!("cm{n}"), json!({"a": "b"})))
        .collect();
    for at in [4, 7] {
        all[at]["metadata"]["namespace"] = "no-such-namespace".into();
    }
    agent.create("work", manifests(all)).await?;
    let letters = "TTTTFTTFTT";
    let work = agent
        .shows("work", &[("Applied", letters), ("Available", letters)])
        .await?;
    let available = work_condition(&work, "Available")?;
    ensure!(
        available["reason"] == "ResourcesNotAvailable"
            && available["message"]
                == "2 of 10 resources are not available, first: ConfigMap no-such-namespace/cm4: \
                    Resource is not available",
        "{available}"
    );
    let first = manifest_condition(&work, 4, "Available")?;
    ensure!(first["message"] == "Resource is not available", "{first}");
    Ok(())
}
