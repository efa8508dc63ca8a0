//! Metrics that only a defect of muster moves, or half an hour, as muster would write them.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use muster::reference;
use muster_metrics::Metric;

/// A process that has found defects in itself. No healthy one can be brought to that, so the story
/// writes their metrics in its place, with the program's own recorder and declarations.
pub(super) struct Defects {
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Defects {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            let page = page();
            while let Ok((mut connection, _)) = listener.accept().await {
                let page = page.clone();
                tokio::spawn(async move {
                    // One request a connection; whatever it asks for, there is one answer.
                    let mut request = [0; 4096];
                    let _ = connection.read(&mut request).await;
                    let _ = connection.write_all(page.as_bytes()).await;
                    let _ = connection.shutdown().await;
                });
            }
        });
        Ok(Self {
            address,
            _serving: AbortOnDropHandle::new(serving),
        })
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }
}

fn page() -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        reference::metrics().for_each(Metric::describe);
        for name in ["muster_actor_panics_total", "muster_actor_restarts_total"] {
            metrics::counter!(name, "role" => "ManifestWork").increment(1);
        }
        for name in [
            "muster_mwrs_recount_differences_total",
            "muster_mwrs_sweep_differences_total",
            "muster_watch_missed_total",
        ] {
            metrics::counter!(name).increment(1);
        }
        // Nor for half an hour without progress is there time.
        metrics::gauge!("muster_mwrs_sets", "phase" => "Stalled").set(1.0);
        let reason = "full";
        metrics::counter!("muster_actor_mail_refused_total", "message" => "Fact", "reason" => reason)
            .increment(1);
    });
    let body = recorder.handle().render();
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}
