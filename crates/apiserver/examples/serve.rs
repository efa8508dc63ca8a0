//! Serves an empty cluster with a workload simulator and writes a kubeconfig:
//! `cargo run -p muster-apiserver --example serve -- KUBECONFIG_FILE`, then
//! `kubectl --kubeconfig KUBECONFIG_FILE get all -A`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use muster_apiserver::{ApiServer, ServeOptions, SimulatorOptions, WorkloadSimulator};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args()
        .nth(1)
        .ok_or("usage: serve KUBECONFIG_FILE")?;
    let server = ApiServer::builder().build().await?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let serving = server
        .serve(ServeOptions {
            listen,
            dir: None,
            tokens: BTreeMap::new(),
            limits: muster_apiserver::ConnectionLimits::default(),
        })
        .await?;
    // JSON is YAML.
    std::fs::write(&file, serde_json::to_string_pretty(&serving.kubeconfig())?)?;
    println!(
        "serving https://{}, kubeconfig in {file}, Ctrl-C ends",
        serving.addr()
    );
    WorkloadSimulator::new(server.uncounted_client(), SimulatorOptions::default())
        .run(CancellationToken::new())
        .await;
    Ok(())
}
