//! Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7386), strategic merge patch.

mod json;
mod strategic;

use serde_json::Value;

use crate::schema::Schema;
use crate::status::{ApiError, ApiResult};

/// The kinds of patch, named by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl PatchKind {
    /// Custom types have no merge keys, so they take no strategic merge patch. Server-side
    /// apply is no patch in this sense and has its own verb.
    pub(crate) fn of(content_type: &str, builtin: bool) -> ApiResult<Self> {
        match content_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if builtin => Ok(Self::Strategic),
            _ if builtin => Err(ApiError::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(ApiError::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }
}

/// A parsed patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    pub(crate) fn parse(kind: PatchKind, body: &[u8]) -> ApiResult<Self> {
        match kind {
            PatchKind::Json => json::parse(body).map(Self::Json),
            PatchKind::Merge => object(body).map(Self::Merge),
            PatchKind::Strategic => object(body).map(Self::Strategic),
        }
    }

    /// True when the patch names the revision that it is meant for.
    pub(crate) fn sets_revision(&self) -> bool {
        match self {
            Self::Json(patch) => patch
                .0
                .iter()
                .any(|op| op.path().as_str() == "/metadata/resourceVersion"),
            Self::Merge(patch) | Self::Strategic(patch) => patch
                .pointer("/metadata/resourceVersion")
                .is_some_and(|v| !v.is_null()),
        }
    }

    /// Changes `target`, whose type has this schema.
    pub(crate) fn apply(&self, target: &mut Value, schema: Option<&Schema>) -> ApiResult<()> {
        match self {
            Self::Json(patch) => json::apply(patch, target),
            Self::Merge(patch) => {
                json_patch::merge(target, patch);
                Ok(())
            }
            Self::Strategic(patch) => {
                strategic::apply(schema, target, patch).map_err(ApiError::bad_request)
            }
        }
    }
}

fn object(body: &[u8]) -> ApiResult<Value> {
    let patch: Value = serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    if patch.is_object() {
        Ok(patch)
    } else {
        Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            crate::validation::go_kind(&patch)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use serde_json::json;

    #[test]
    fn content_types_name_the_patch() {
        assert_eq!(
            PatchKind::of("application/merge-patch+json", false).unwrap(),
            PatchKind::Merge
        );
        for (content_type, builtin) in [
            ("application/strategic-merge-patch+json", false),
            ("application/json", true),
        ] {
            let error = PatchKind::of(content_type, builtin).unwrap_err();
            assert_eq!(error.code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
    }

    #[test]
    fn bad_patches_are_refused_and_failed_tests_are_unprocessable() {
        for (kind, body) in [
            (PatchKind::Json, "{}"),
            (PatchKind::Json, "[{\"op\":\"frob\",\"path\":\"/a\"}]"),
            (PatchKind::Merge, "[]"),
            (PatchKind::Strategic, "nonsense"),
        ] {
            let error = Patch::parse(kind, body.as_bytes()).unwrap_err();
            assert_eq!(error.code, StatusCode::BAD_REQUEST, "{body}");
        }
        let test = br#"[{"op":"test","path":"/a","value":2}]"#;
        let patch = Patch::parse(PatchKind::Json, test).unwrap();
        let mut target = json!({"a": 1});
        let error = patch.apply(&mut target, None).unwrap_err();
        assert_eq!(error.code, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(target, json!({"a": 1}));
    }
}
