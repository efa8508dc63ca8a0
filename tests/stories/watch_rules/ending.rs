//! An agent that is asked to end while its sink has much to be told.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};

use super::lives::flags;
use super::{Ruled, config_map, rule, sink_of};
use crate::support::live::LIMIT;
use crate::support::own_process::OwnProcess;
use crate::support::{Story, World, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![what_waits_is_written_before_the_end]
}

/// S70, K13: SIGTERM while a thousand events wait for a reader, who comes then: each is written, and
/// the process ends well.
async fn what_waits_is_written_before_the_end(world: World) -> Result<()> {
    const EVENTS: usize = 1_000;
    let mut ruled = Ruled::new(&world).await?;
    // Stopped, for another one with a pipe in the place of its file.
    ruled.agent.kill().await?;
    let dir = world.dir(&unique_name("pipe"))?;
    let (pipe, settings) = (dir.join("events"), dir.join("muster.toml"));
    let made = Command::new("mkfifo").arg(&pipe).status()?;
    ensure!(made.success(), "no pipe");
    std::fs::write(&settings, sink_of(&pipe))?;
    let rest = ruled.agent.spoke().rest();
    let path = format!("/api/v1/namespaces/{}/configmaps", ruled.agent.name());
    stream::iter(0..EVENTS)
        .map(|n| {
            let (rest, path) = (&rest, &path);
            async move {
                let object = config_map(&format!("n{n}"), "1");
                rest.post(path, &object).await?.created()
            }
        })
        .buffer_unordered(16)
        .try_for_each(|_| async { Ok(()) })
        .await?;

    let mut agent = OwnProcess::agent(&[], &flags(&ruled, &settings), |command| command)?;
    ruled.create_rule(&rule("maps", &["configmaps"])).await?;
    eventually(LIMIT, "all events to wait", || async {
        let (_, metrics) = agent.get("/metrics").await?;
        let mut lines = metrics.lines();
        let depth = lines.find(|line| line.starts_with("muster_rule_queue_depth{"));
        let depth = depth.context("no queue")?;
        // Besides those of the story there may be some of the server.
        let (_, waiting) = depth.rsplit_once(' ').context("no value")?;
        ensure!(waiting.parse::<usize>()? >= EVENTS, "{depth}");
        Ok(())
    })
    .await?;
    agent.terminate().await?;
    // It ends with the last writer.
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe));
    let ended = agent.ended().await?;
    let (text, log) = (read.await??, agent.log());
    ensure!(ended.success(), "{ended}: {log}");
    ensure!(
        !log.contains("ERROR") && !log.contains("not delivered"),
        "{log}"
    );
    let told = (0..EVENTS).filter(|n| text.contains(&format!("\"name\":\"n{n}\",")));
    let told = told.count();
    ensure!(told == EVENTS && text.ends_with('\n'), "{told} of {EVENTS}");
    Ok(())
}
