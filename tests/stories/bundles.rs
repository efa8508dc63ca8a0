//! Definitions of widely used software, as works deliver them: large and deep.
//!
//! Each bundle is delivered by as many works as it takes, is as wanted after a restart of the agent
//! without a write, goes with the works, and is taken over when it was there before. After each step
//! the agent is ready: nothing else may be held up by such objects.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::agent::Agent;
use crate::support::parts::Part;
use crate::support::works::manifests;
use crate::support::{Story, World, eventually};

pub(crate) fn stories() -> Vec<Story> {
    let stories = on_each_backend![
        the_definitions_of_cert_manager_are_delivered,
        the_definitions_of_the_gateway_api_are_delivered,
        the_definitions_of_argo_cd_are_delivered,
        the_definitions_of_the_prometheus_operator_are_delivered,
    ];
    let limited = stories.into_iter().map(|story| story.within(LIMIT));
    limited.collect()
}

/// Bytes of manifests in one work. A hub takes 512,000.
const WORK_BYTES: usize = 400_000;

/// A server takes its time to clean up definitions, and the agent looks at a deletion that waits a minute
/// apart at most. Under load a real server needs minutes for a dozen of them.
const GONE_WITHIN: Duration = Duration::from_secs(600);

/// The definitions come, go and come again.
const LIMIT: Duration = Duration::from_secs(900);

async fn the_definitions_of_cert_manager_are_delivered(world: World) -> Result<()> {
    deliver(world, "cert-manager", 6).await
}

async fn the_definitions_of_the_gateway_api_are_delivered(world: World) -> Result<()> {
    deliver(world, "gateway-api", 11).await
}

async fn the_definitions_of_argo_cd_are_delivered(world: World) -> Result<()> {
    deliver(world, "argo-cd", 3).await
}

async fn the_definitions_of_the_prometheus_operator_are_delivered(world: World) -> Result<()> {
    deliver(world, "prometheus-operator", 10).await
}

/// The definitions of a bundle.
fn definitions(world: &World, bundle: &str) -> Result<Vec<Value>> {
    let folder = world.part(Part::Bundles)?.join(bundle);
    let mut files = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let text = std::fs::read_to_string(file)?;
        serde_saphyr::from_str(&text).with_context(|| file.display().to_string())
    };
    files.iter().map(read).collect()
}

/// The same in parts that a work can hold.
fn portions(definitions: &[Value]) -> Vec<Vec<Value>> {
    let mut portions: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    for definition in definitions {
        let more = definition.to_string().len();
        match portions.last_mut() {
            Some(portion) if bytes + more <= WORK_BYTES => {
                portion.push(definition.clone());
                bytes += more;
            }
            _ => {
                portions.push(vec![definition.clone()]);
                bytes = more;
            }
        }
    }
    portions
}

fn name(definition: &Value) -> Result<&str> {
    let name = definition["metadata"]["name"].as_str();
    name.with_context(|| format!("no name in {definition}"))
}

struct Delivery {
    agent: Agent,
    definitions: Vec<Value>,
    portions: Vec<Vec<Value>>,
}

impl Delivery {
    fn works(&self) -> impl Iterator<Item = (String, &Vec<Value>)> {
        let numbered = self.portions.iter().enumerate();
        numbered.map(|(number, portion)| (format!("work-{number}"), portion))
    }

    async fn apply(&self) -> Result<()> {
        for (work, portion) in self.works() {
            self.agent.create(&work, manifests(portion.clone())).await?;
        }
        for (work, _) in self.works() {
            self.agent.settled(&work).await?;
        }
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        self.agent.kill().await?;
        self.agent.run().await?;
        for (work, _) in self.works() {
            self.agent.looks_again(&work, 2).await?;
            self.agent.settled(&work).await?;
        }
        self.agent.says_ready(true).await
    }

    /// How often the spec of each definition has been written.
    async fn generations(&self) -> Result<Vec<Value>> {
        let mut generations = Vec::new();
        for definition in &self.definitions {
            let live = self.live(definition)?.get().await?;
            generations.push(live["metadata"]["generation"].clone());
        }
        Ok(generations)
    }

    fn live(&self, definition: &Value) -> Result<crate::support::live::Live> {
        let name = name(definition)?;
        Ok(self.agent.object("customresourcedefinitions", name))
    }

    async fn delete(&self) -> Result<()> {
        for (work, _) in self.works() {
            self.agent.work(&work).delete().await?;
        }
        for (work, _) in self.works() {
            let work = self.agent.work(&work);
            eventually(GONE_WITHIN, &format!("{} to go", work.path()), || async {
                ensure!(work.find().await?.is_none(), "it is there");
                Ok(())
            })
            .await?;
        }
        for definition in &self.definitions {
            self.live(definition)?.is_absent().await?;
        }
        Ok(())
    }
}

async fn deliver(world: World, bundle: &str, count: usize) -> Result<()> {
    let definitions = definitions(&world, bundle)?;
    ensure!(definitions.len() == count, "{}", definitions.len());
    let (hub, own) = tokio::try_join!(world.hub(), world.own_cluster())?;
    let mut agent = Agent::between(&world, hub, own.cluster().clone(), &[]).await?;
    agent.run().await?;
    let mut delivery = Delivery {
        agent,
        portions: portions(&definitions),
        definitions,
    };

    delivery.apply().await?;
    let generations = delivery.generations().await?;
    delivery.restart().await?;
    let later = delivery.generations().await?;
    ensure!(later == generations, "{generations:?} {later:?}");
    delivery.delete().await?;

    for definition in &delivery.definitions {
        delivery.live(definition)?.create(definition).await?;
    }
    delivery.apply().await?;
    delivery.restart().await?;
    drop(delivery);
    drop(own);
    Ok(())
}
