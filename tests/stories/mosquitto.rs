//! A mosquitto as the page `deploy/mosquitto/README.md` has it made, under a systemd of the story's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::CertifiedKey;

use crate::support::docs::{root, section};
use crate::support::own_process::CannotHere;
use crate::support::parts::Part;
use crate::support::systemd::{Network, Systemd};
use crate::support::{Servers, Story, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![the_page_makes_a_broker_that_knows_its_users]
}

const LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "open sesame";

/// A line that asks for a password, typed at a terminal.
fn at_terminal(line: &str) -> String {
    format!("printf '{PASSWORD}\\n{PASSWORD}\\n' | script -qec '{line}' /dev/null")
}

async fn the_page_makes_a_broker_that_knows_its_users(servers: Arc<Servers>) -> Result<()> {
    servers.part(Part::Mosquitto)?;
    if !Path::new("/usr/lib/systemd/system/mosquitto.service").exists() {
        return Err(CannotHere("mosquitto has no unit here, as Debian's package brings it").into());
    }
    let program = servers.part(Part::Systemd)?;
    let dir = servers.new_dir(&unique_name("mosquitto-page"))?;
    let files = dir.join("files/broker");
    let deploy = files.join("deploy/mosquitto");
    std::fs::create_dir_all(&deploy)?;
    for file in ["mosquitto.conf", "acl-agents", "acl-sources"] {
        let from = root().join("deploy/mosquitto").join(file);
        std::fs::copy(from, deploy.join(file))?;
    }
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    for (file, text) in [
        ("tls.crt", cert.pem()),
        ("agents.crt", cert.pem()),
        ("tls.key", signing_key.serialize_pem()),
    ] {
        std::fs::write(files.join(file), text)?;
    }
    let systemd = Systemd::start(&program, &dir, Network::Own).await?;
    let types = async |lines: &str| systemd.run(&format!("cd /broker\n{lines}")).await;

    let lines = section("deploy/mosquitto/README.md", "mosquitto")?.lines();
    let with_password = lines.iter().map(|line| {
        if line.starts_with("mosquitto_passwd") {
            at_terminal(line)
        } else {
            line.clone()
        }
    });
    let with_password: Vec<String> = with_password.collect();
    ensure!(
        with_password != lines,
        "no password is asked for: {lines:?}"
    );
    if let Err(error) = types(&with_password.join("\n")).await {
        let log = types("journalctl -u mosquitto -o cat").await?;
        return Err(error.context(log));
    }

    // Who knows the password is let in, and reads what is for him and nobody else.
    let client = |program: &str, port: u16, user: &str, password: &str, more: &str| {
        format!(
            "timeout 60 {program} -V mqttv5 -h localhost -p {port} --cafile tls.crt \
             -u {user} -P '{password}' -q 1 {more}"
        )
    };
    let publish = |cluster: &str, password: &str| {
        let topic = format!("-t sources/hub1/clusters/{cluster}/sourceevents -m of-{cluster}");
        client("mosquitto_pub", 8884, "hub1", password, &topic)
    };
    eventually(LIMIT, "the broker to listen", || async {
        types(&publish("cluster1", PASSWORD)).await
    })
    .await?;
    let subscribe = client(
        "mosquitto_sub",
        8883,
        "cluster1",
        PASSWORD,
        "-t sources/hub1/clusters/+/sourceevents -C 1 -i agent -c -x 600",
    );
    // Once for a subscription that lasts, then for what has come meanwhile.
    types(&subscribe.replace("-C 1", "-E")).await?;
    types(&publish("cluster2", PASSWORD)).await?;
    types(&publish("cluster1", PASSWORD)).await?;
    let received = types(&subscribe).await?;
    ensure!(received == "of-cluster1\n", "{received}");
    let with_another = subscribe.replace(PASSWORD, "another");
    for wrong in [publish("cluster1", "another"), with_another] {
        let refused = types(&wrong).await;
        let refused = refused.err().context("any password will do")?.to_string();
        ensure!(refused.contains("Not authorized"), "{refused}");
    }

    let secret = "/etc/mosquitto/passwords-agents /etc/mosquitto/certs/tls.key";
    let modes = types(&format!("stat -c '%a %U' {secret}")).await?;
    ensure!(modes == "600 mosquitto\n600 mosquitto\n", "{modes}");
    systemd.stop().await
}
