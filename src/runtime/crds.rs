//! Puts the CRDs that muster needs on an API server that lacks them.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::runtime::wait::Condition;
use kube::runtime::wait::conditions::is_crd_established;
use kube::{Api, Client, ResourceExt};
use muster_actors::api_text;
use muster_actors::supervision::{Backoff, BackoffPolicy};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long an API server may take to serve a new type; the real one takes about a second.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(30);

/// How often it is asked meanwhile. To be told instead would take the rights to list and to watch.
const ESTABLISH_PAUSE: Duration = Duration::from_millis(200);

/// Why a CRD is not served.
#[derive(Debug, thiserror::Error)]
enum CrdError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("CRD {0} is not established after {ESTABLISH_LIMIT:?}")]
    NotEstablished(String),
}

/// Creates those of `crds` that do not exist, and waits until all are served. An existing one is
/// left as it is: it may be OCM's.
async fn create_missing(
    client: &Client,
    crds: &[CustomResourceDefinition],
) -> Result<(), CrdError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        if api.get_opt(&name).await?.is_some() {
            continue;
        }
        match api.create(&PostParams::default(), crd).await {
            Ok(_) => info!(crd = name, "created CRD"),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    for crd in crds {
        let name = crd.name_any();
        let established = tokio::time::timeout(ESTABLISH_LIMIT, established(&api, &name));
        match established.await {
            Ok(answer) => answer?,
            Err(_) => return Err(CrdError::NotEstablished(name)),
        }
    }
    Ok(())
}

/// Waits until the type of a CRD is served.
async fn established(api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), kube::Error> {
    while !is_crd_established().matches_object(api.get_opt(name).await?.as_ref()) {
        tokio::time::sleep(ESTABLISH_PAUSE).await;
    }
    Ok(())
}

/// Creates missing CRDs, with retries for as long as `shutdown` allows: the API server may be away
/// when muster starts. `whose` names it in the log.
pub(super) async fn ensure(
    client: Client,
    crds: Vec<CustomResourceDefinition>,
    whose: String,
    shutdown: CancellationToken,
) {
    let mut backoff = Backoff::new(BackoffPolicy::REQUEST);
    while let Err(error) = create_missing(&client, &crds).await {
        let forbidden =
            matches!(&error, CrdError::Api(kube::Error::Api(status)) if status.is_forbidden());
        // Without the permission somebody else installs them; look again now and then.
        let delay = if forbidden {
            Duration::from_secs(60)
        } else {
            backoff.failed()
        };
        let error = match &error {
            CrdError::Api(error) => api_text::text(error),
            CrdError::NotEstablished(_) => error.to_string(),
        };
        warn!(
            api = whose,
            error,
            ?delay,
            "failed to install CRDs, retrying"
        );
        if shutdown
            .run_until_cancelled(tokio::time::sleep(delay))
            .await
            .is_none()
        {
            return;
        }
    }
}
