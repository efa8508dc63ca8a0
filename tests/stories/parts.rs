//! The real parts themselves: what other stories rely on is shown to hold here.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{from_value, json};

use crate::support::{MosquittoConf, Servers, Story, World, eventually};

const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = once![
        an_api_server_keeps_its_objects_when_killed,
        an_api_server_counts_watches_and_requests,
        mosquitto_keeps_what_mqtt_5_adds,
        mosquitto_refuses_what_its_acl_does_not_allow,
    ];
    stories.extend(on_each_backend![a_hub_and_a_spoke_are_two_clusters]);
    stories
}

async fn a_hub_and_a_spoke_are_two_clusters(world: World) -> Result<()> {
    let (hub, spoke) = tokio::try_join!(world.hub(), world.spoke())?;
    let namespace = hub.namespace().await?;
    let there = spoke
        .rest()
        .get(&format!("/api/v1/namespaces/{namespace}"))
        .await?;
    there.refused(
        404,
        "NotFound",
        &format!("namespaces \"{namespace}\" not found"),
    )?;
    Ok(())
}

async fn an_api_server_keeps_its_objects_when_killed(servers: Arc<Servers>) -> Result<()> {
    let server = servers.own_api_server().await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(server.cluster().client(), "default");
    let kept: ConfigMap = from_value(json!({ "metadata": { "name": "kept" } }))?;
    let before = config_maps.create(&PostParams::default(), &kept).await?;

    let server = server.restart().await?;
    let after = config_maps.get("kept").await?;
    ensure!(
        after.metadata.uid == before.metadata.uid,
        "another object came back: {after:?}"
    );
    server.stop().await
}

async fn an_api_server_counts_watches_and_requests(servers: Arc<Servers>) -> Result<()> {
    let server = servers.own_api_server().await?;
    let before = server.open_watches("podtemplates").await?;
    let lists_before = server.requests("LIST", "podtemplates").await?;
    let rest = server.cluster().rest();
    let templates = "/api/v1/namespaces/default/podtemplates";

    rest.get(templates).await?.ok()?;
    let watch = rest.watch(&format!("{templates}?watch=true")).await?;
    let other = rest.watch(&format!("{templates}?watch=true")).await?;
    counted(&server, before + 2).await?;
    drop(other);
    counted(&server, before + 1).await?;
    drop(watch);
    counted(&server, before).await?;
    let lists = server.requests("LIST", "podtemplates").await?;
    ensure!(
        lists == lists_before + 1,
        "{lists} lists after one, {lists_before} before it"
    );
    server.stop().await
}

/// Waits until the server counts `expected` open watches.
async fn counted(server: &crate::support::RealApiServer, expected: u64) -> Result<()> {
    eventually(LIMIT, "the watches to be counted", || async {
        let open = server.open_watches("podtemplates").await?;
        ensure!(open == expected, "{open} open watches and not {expected}");
        Ok(())
    })
    .await
}

async fn mosquitto_keeps_what_mqtt_5_adds(servers: Arc<Servers>) -> Result<()> {
    let broker = servers.mosquitto(MosquittoConf::default()).await?;
    // Retained, so that the subscriber may come later.
    let published = broker
        .publisher()
        .args([
            "-q",
            "1",
            "-r",
            "-t",
            "sources/hub/clusters/c1/spec",
            "-m",
            "payload",
        ])
        .args(["-D", "publish", "user-property", "ce-type", "works"])
        .args(["-D", "publish", "content-type", "application/json"])
        .output()
        .await?;
    ensure!(
        published.status.success(),
        "mosquitto_pub failed: {published:?}"
    );

    let received = broker
        .subscriber()
        .args(["-C", "1", "-W", "20", "-t", "sources/+/clusters/c1/spec"])
        .args(["-F", "%t|%p|%C|%P"])
        .output()
        .await?;
    let received = String::from_utf8(received.stdout)?;
    ensure!(
        received == "sources/hub/clusters/c1/spec|payload|application/json|ce-type:works\n",
        "received {received:?}"
    );
    broker.stop().await
}

async fn mosquitto_refuses_what_its_acl_does_not_allow(servers: Arc<Servers>) -> Result<()> {
    let broker = servers
        .mosquitto(MosquittoConf {
            users: &[("agent-c1", "secret"), ("observer", "secret")],
            acl: "user agent-c1\ntopic write clusters/c1/status\n\
                  user observer\ntopic read clusters/#\n",
        })
        .await?;
    let wrong_password = broker
        .publisher()
        .args([
            "-u",
            "agent-c1",
            "-P",
            "wrong",
            "-t",
            "clusters/c1/status",
            "-m",
            "forged",
        ])
        .output()
        .await?;
    ensure!(
        !wrong_password.status.success(),
        "a wrong password was accepted"
    );
    let publish = async |cluster: &str| -> Result<String> {
        let output = broker
            .publisher()
            .args([
                "-u", "agent-c1", "-P", "secret", "-q", "1", "-r", "-m", "hello", "-t",
            ])
            .arg(format!("clusters/{cluster}/status"))
            .output()
            .await?;
        Ok(String::from_utf8(output.stderr)?)
    };
    let refusal = publish("c2").await?;
    ensure!(
        refusal.contains("Not authorized"),
        "mosquitto_pub says {refusal:?}"
    );
    let complaint = publish("c1").await?;
    ensure!(complaint.is_empty(), "mosquitto_pub says {complaint:?}");

    let seen = broker
        .subscriber()
        .args([
            "-u",
            "observer",
            "-P",
            "secret",
            "-t",
            "clusters/#",
            "-v",
            "-C",
            "1",
            "-W",
            "20",
        ])
        .output()
        .await?;
    let seen = String::from_utf8(seen.stdout)?;
    ensure!(
        seen == "clusters/c1/status hello\n",
        "the observer saw {seen:?}"
    );
    broker.stop().await
}
