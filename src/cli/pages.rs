//! Reading lists that may be long, and what need not be there to be read.

use std::fmt::Debug;

use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

use super::error::{CommandError, is_out_of_reach, text};

/// Objects in a page: what client-go asks for.
pub(super) const PAGE: u32 = 500;

/// Lists objects, a page at a time, and hands each to `take`.
pub(super) async fn each<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    params: &ListParams,
    take: impl FnMut(K),
) -> kube::Result<()> {
    pages(api, params.clone().limit(PAGE), take).await
}

async fn pages<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    mut params: ListParams,
    mut take: impl FnMut(K),
) -> kube::Result<()> {
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// What was left out, for the end of what is printed.
pub(super) type Notes = Vec<String>;

/// What came of reading something that helps and need not be there: where its type does not exist
/// or the user may not read it, that is noted.
pub(super) fn optional<T>(
    result: kube::Result<T>,
    what: &str,
    notes: &mut Notes,
) -> Result<Option<T>, CommandError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if is_out_of_reach(&status) => {
            let why = text(&kube::Error::Api(status));
            notes.push(format!("{what} could not be read: {why}"));
            Ok(None)
        }
        Err(source) => Err(CommandError::Api {
            what: format!("read {what}"),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::api::PostParams;
    use kube::core::Status;
    use muster_api::cluster::ManagedCluster;
    use muster_apiserver::{ApiServer, Storage};

    use super::*;

    #[tokio::test]
    async fn a_long_list_is_read_to_its_end() {
        let server = ApiServer::builder().storage(Storage::Memory);
        let server = server.build().await.unwrap();
        let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
        for number in 0..5 {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(format!("map-{number}"));
            api.create(&PostParams::default(), &map).await.unwrap();
        }
        for page in [1, 2, 5, 6] {
            let mut names = Vec::new();
            pages(&api, ListParams::default().limit(page), |map| {
                names.push(map.name_any());
            })
            .await
            .unwrap();
            let expected = ["map-0", "map-1", "map-2", "map-3", "map-4"];
            assert_eq!(names, expected, "pages of {page}");
        }
        server.shutdown().await;
    }

    #[tokio::test]
    async fn what_need_not_be_there_is_noted_and_other_errors_are_not() {
        let server = ApiServer::builder().storage(Storage::Memory);
        let server = server.build().await.unwrap();
        let api: Api<ManagedCluster> = Api::all(server.client());
        let mut notes = Notes::new();
        let listed = each(&api, &ListParams::default(), |_| {}).await;
        assert_eq!(optional(listed, "clusters", &mut notes).unwrap(), None);
        server.shutdown().await;
        let refused = |code, message: &str| {
            let status = Status::failure(message, "Why").with_code(code);
            Err::<(), _>(kube::Error::Api(status.boxed()))
        };
        let forbidden = refused(403, "you may not");
        assert_eq!(optional(forbidden, "sets", &mut notes).unwrap(), None);
        assert_eq!(
            notes,
            [
                "clusters could not be read: 404 page not found",
                "sets could not be read: you may not"
            ]
        );
        let error = optional(refused(500, "broken"), "sets", &mut notes).unwrap_err();
        assert_eq!(error.to_string(), "failed to read sets: broken");
        assert_eq!(notes.len(), 2);
    }
}
