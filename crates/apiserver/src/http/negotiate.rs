//! Which form of an answer a request accepts.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::status::{ApiError, ApiResult};

/// The form of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Objects as they are.
    Object,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata(List).
    Metadata,
    /// `apidiscovery.k8s.io/v2` lists.
    AggregatedDiscovery,
}

/// Picks the first form of the `Accept` header that the server can give.
pub(crate) fn accepted(headers: &HeaderMap) -> ApiResult<Form> {
    let Some(accept) = headers.get(ACCEPT).and_then(|v| v.to_str().ok()) else {
        return Ok(Form::Object);
    };
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*" | "") {
            continue;
        }
        let (mut kind, mut group, mut version) = ("", "", "");
        for parameter in parts {
            match parameter.split_once('=') {
                Some(("as", v)) => kind = v,
                Some(("g", v)) => group = v,
                Some(("v", v)) => version = v,
                _ => {}
            }
        }
        match (kind, group, version) {
            ("", _, _) => return Ok(Form::Object),
            ("Table", "meta.k8s.io", "v1") => return Ok(Form::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                return Ok(Form::Metadata);
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                return Ok(Form::AggregatedDiscovery);
            }
            _ => {}
        }
    }
    Err(ApiError::not_acceptable())
}

/// What the real server calls `OpenAPI` version 2 in protobuf when it gives it.
pub(crate) const OPENAPI_PROTOBUF: &str =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Whether `OpenAPI` version 2 is wanted in protobuf, as kubectl wants it; it asks by another name
/// than it is answered.
pub(crate) fn wants_openapi_protobuf(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|v| v.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/com.github.proto-openapi.spec.v2"))
}

/// The content type of a request's body, without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.split(';').next())
        .unwrap_or_default()
        .trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_given_wins() {
        let cases = [
            ("application/json", Some(Form::Object)),
            ("*/*", Some(Form::Object)),
            (
                "application/vnd.kubernetes.protobuf, application/json",
                Some(Form::Object),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some(Form::Table),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json",
                Some(Form::Object),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::Metadata),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(Form::AggregatedDiscovery),
            ),
            ("application/xml", None),
        ];
        for (accept, want) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(accepted(&headers).ok(), want, "{accept}");
        }
        assert_eq!(accepted(&HeaderMap::new()).ok(), Some(Form::Object));
    }
}
