//! Sinks other than a file, and one that fails.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::super::commands::readable_by_others;
use super::{Ruled, config_map, rule};
use crate::support::live::LIMIT;
use crate::support::{MosquittoConf, Story, World, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        objects_are_kept_in_a_repository_and_published,
        a_sink_that_fails_holds_up_nobody_and_says_why,
        secrets_are_written_in_plain_only_where_that_is_allowed,
    ]
}

/// A sink that writes objects as they are takes no Secrets, also not by a wildcard, unless its settings
/// allow it. What is written can be read by its owner only.
async fn secrets_are_written_in_plain_only_where_that_is_allowed(world: World) -> Result<()> {
    let (logs, kept) = (
        world.dir(&unique_name("open-sink"))?.join("logs"),
        world.dir(&unique_name("kept-rules"))?,
    );
    let open = logs.join("open.log");
    let ruled = Ruled::with(
        &world,
        &format!(
            "[[sinks]]\nname = \"open\"\nkind = \"log\"\npath = {:?}\nplain_secrets = true\n\
             [rules]\ndata_dir = {:?}\n",
            open.display().to_string(),
            kept.display().to_string(),
        ),
    )
    .await?;
    let mut to_open = rule("open", &["secrets"]);
    to_open["spec"]["destination"] = json!("open");
    ruled.create_rule(&to_open).await?;
    ruled
        .create_rule(&rule("closed", &["configmaps", "secrets"]))
        .await?;
    ruled.create_rule(&rule("wide", &["*"])).await?;
    ruled
        .row_is("closed", "closed file False RefusedBySink 1 0")
        .await?;
    let message = ruled.message_of("closed").await?;
    ensure!(message.contains("plain_secrets"), "{message}");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hush"},
        "data": {"token": "aHVzaC1odXNo"}});
    ruled.apply(&secret).await?;
    eventually(LIMIT, "the Secret to be told where it may", || async {
        let text = std::fs::read_to_string(&open)?;
        ensure!(text.contains("aHVzaC1odXNo"), "{text}");
        Ok(())
    })
    .await?;
    // Whatever would have been told of it comes before this.
    ruled.apply(&config_map("after", "1")).await?;
    ruled.tells("after", &["CREATE after 1"]).await?;
    let text = std::fs::read_to_string(&ruled.file)?;
    ensure!(
        !text.contains("hush") && !text.contains("aHVzaC1odXNo"),
        "{text}"
    );
    let mut readable = readable_by_others(&logs)?;
    readable.extend(readable_by_others(&kept)?);
    readable.extend(readable_by_others(&ruled.file)?);
    ensure!(readable.is_empty(), "{readable:?}");
    Ok(())
}

pub(super) fn git(args: &[&str]) -> Result<String> {
    let output = std::process::Command::new("git")
        .args(args)
        .output()
        .context("the program git")?;
    ensure!(output.status.success(), "git {args:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Serves the repositories of a folder by Git's own protocol; gives back the port.
async fn git_server(root: &Path) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    let root = root.display().to_string();
    let serve = move |stream: TcpStream| -> Result<()> {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        let output = OwnedFd::from(stream.try_clone()?);
        tokio::process::Command::new("git")
            .args(["daemon", "--inetd", "--export-all", "--enable=receive-pack"])
            .arg(format!("--base-path={root}"))
            .stdin(OwnedFd::from(stream))
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(())
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Err(error) = serve(stream) {
                eprintln!("git daemon: {error:#}");
            }
        }
    });
    Ok(port)
}

/// A repository that comes later, on a server. Meanwhile the rule says why, what it wants waits,
/// and another sink is told. Secrets without a key are for no repository.
async fn a_sink_that_fails_holds_up_nobody_and_says_why(world: World) -> Result<()> {
    let dir = world.dir(&unique_name("repositories"))?;
    let port = git_server(&dir).await?;
    let kept = world.dir(&unique_name("kept-rules"))?.display().to_string();
    let ruled = Ruled::with(
        &world,
        &format!(
            "[[sinks]]\nname = \"record\"\nkind = \"git\"\n\
             url = \"git://127.0.0.1:{port}/fleet.git\"\n[rules]\ndata_dir = {kept:?}\n"
        ),
    )
    .await?;
    let to_record = |resources: &[&str]| {
        let mut rule = rule("record", resources);
        rule["spec"]["destination"] = json!("record");
        rule
    };
    ruled
        .create_rule(&to_record(&["configmaps", "secrets"]))
        .await?;
    ruled.apply(&rule("maps", &["configmaps"])).await?;
    ruled
        .row_is("record", "record record False RefusedBySink 1 0")
        .await?;
    ruled.apply(&to_record(&["configmaps"])).await?;
    ruled.apply(&config_map("kept", "1")).await?;
    ruled.tells("kept", &["CREATE kept 1"]).await?;
    ruled
        .row_is("record", "record record False SinkFailing 1 1")
        .await?;
    let message = ruled.message_of("record").await?;
    ensure!(
        message.contains("record") && message.contains("fleet.git"),
        "{message}"
    );
    let waiting = [
        ("muster_rule_queue_depth", "sink=\"record\"", 1.0),
        ("muster_rule_queue_depth", "sink=\"file\"", 0.0),
    ];
    ruled.metrics_are(&waiting).await?;
    for (metric, label) in [
        ("muster_rule_queue_age_seconds", "sink=\"record\""),
        (
            "muster_rule_deliveries_total",
            "sink=\"record\",result=\"error\"",
        ),
    ] {
        let value = ruled.agent.metric(metric, label).await?;
        ensure!(value > 0.0, "{metric}: {value}");
    }

    let repository = dir.join("fleet.git").display().to_string();
    git(&["init", "-q", "--bare", &repository])?;
    let name = ruled.agent.name();
    let file = format!("main:clusters/{name}/v1/configmaps/{name}/kept.yaml");
    eventually(LIMIT, "the file to be there", || async {
        let text = git(&["-C", &repository, "show", &file])?;
        ensure!(text.contains("a: \"1\""), "{text}");
        Ok(())
    })
    .await?;
    ruled
        .row_is("record", "record record True Watching 1 1")
        .await?;
    ruled
        .metrics_are(&[
            ("muster_rule_queue_depth", "sink=\"record\"", 0.0),
            ("muster_rule_queue_age_seconds", "sink=\"record\"", 0.0),
        ])
        .await
}

/// One rule for each sink; a repository of this machine, and the broker of this process.
async fn objects_are_kept_in_a_repository_and_published(world: World) -> Result<()> {
    let dir = world.dir(&unique_name("repository"))?;
    let repository = dir.join("fleet.git");
    let path = repository.display().to_string();
    git(&["init", "-q", "--bare", &path])?;
    let mosquitto = world.mosquitto(MosquittoConf::default()).await?;
    let work = dir.join("work").display().to_string();
    let more = format!(
        "[[sinks]]\nname = \"record\"\nkind = \"git\"\nurl = {path:?}\nwork_dir = {work:?}\n\
         [[sinks]]\nname = \"bus\"\nkind = \"mqtt\"\ntopic = \"rules/{{cluster}}\"\n\
         [mqtt]\nbroker = \"{}\"\n",
        mosquitto.address()
    );
    let ruled = Ruled::with(&world, &more).await?;
    let mut listening = mosquitto
        .subscriber()
        .args(["-t", "rules/+"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let out = listening.stdout.take().context("no output")?;
    let mut heard = BufReader::new(out).lines();
    for sink in ["record", "bus"] {
        let mut rule = rule(sink, &["configmaps"]);
        rule["spec"]["destination"] = json!(sink);
        ruled.create_rule(&rule).await?;
        ruled
            .row_is(sink, &format!("{sink} {sink} True Watching 1 0"))
            .await?;
    }
    ruled.apply(&config_map("kept", "1")).await?;
    let name = ruled.agent.name();
    let file = format!("main:clusters/{name}/v1/configmaps/{name}/kept.yaml");
    eventually(LIMIT, "the file to be there", || async {
        let text = git(&["-C", &path, "show", &file])?;
        ensure!(
            text.contains("a: \"1\"") && !text.contains("managedFields"),
            "{text}"
        );
        Ok(())
    })
    .await?;
    let line = timeout(LIMIT, heard.next_line()).await??;
    let event: Value = serde_json::from_str(&line.context("the listener ended")?)?;
    ensure!(
        event["operation"] == "CREATE" && event["name"] == "kept",
        "{event}"
    );
    ensure!(event["object"]["data"] == json!({"a": "1"}), "{event}");
    ruled.kubectl(&["delete", "cm", "kept"]).await?;
    eventually(LIMIT, "the file to be gone", || async {
        let files = git(&["-C", &path, "ls-tree", "-r", "--name-only", "main"])?;
        ensure!(!files.contains("kept.yaml"), "{files}");
        Ok(())
    })
    .await?;
    let line = timeout(LIMIT, heard.next_line()).await??;
    let event: Value = serde_json::from_str(&line.context("the listener ended")?)?;
    ensure!(
        event["operation"] == "DELETE" && event["name"] == "kept",
        "{event}"
    );
    let subjects = git(&["-C", &path, "log", "--format=%s", "main"])?;
    ensure!(
        subjects.starts_with(&format!("[DELETE] v1/configmaps/{name}/kept\n")),
        "{subjects}"
    );
    Ok(())
}
