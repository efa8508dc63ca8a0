//! get and list.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};

use super::call::{Answer, Call, Outcome};
use super::pages::Pages;
use crate::http::negotiate::Form;
use crate::registry::ResourceDef;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, ApiResult, FieldError, Subject};
use crate::store::{ObjectKey, Scope, Stored};
use crate::table;

/// Which objects a list or a watch selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selection {
    /// Reads and checks both selectors of a request.
    pub(crate) fn of(call: &Call) -> ApiResult<Self> {
        let labels = LabelSelector::parse(call.query.get("labelSelector").unwrap_or_default())
            .map_err(ApiError::bad_request)?;
        let fields = FieldSelector::parse(call.query.get("fieldSelector").unwrap_or_default())
            .map_err(ApiError::bad_request)?;
        for field in fields.fields() {
            check_field(&call.def, field)?;
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.labels.matches(&object.labels) && self.fields.matches(|field| object.field(field))
    }

    /// Narrows a scope to one object where the field selector pins its name.
    pub(crate) fn narrow(&self, scope: Scope, namespaced: bool) -> Scope {
        let Some(name) = self.fields.exact("metadata.name") else {
            return match (scope, self.fields.exact("metadata.namespace")) {
                (Scope::All, Some(namespace)) if namespaced => {
                    Scope::Namespace(namespace.to_owned())
                }
                (scope, _) => scope,
            };
        };
        match scope {
            Scope::Namespace(namespace) => Scope::Object(ObjectKey::new(&namespace, name)),
            Scope::All if !namespaced => Scope::Object(ObjectKey::new("", name)),
            Scope::All => match self.fields.exact("metadata.namespace") {
                Some(namespace) => Scope::Object(ObjectKey::new(namespace, name)),
                None => Scope::All,
            },
            Scope::Object(key) => Scope::Object(key),
        }
    }
}

fn check_field(def: &ResourceDef, field: &str) -> ApiResult<()> {
    let known = field == "metadata.name"
        || (field == "metadata.namespace" && (def.namespaced || def.builtin.is_some()))
        || def.selectable.iter().any(|f| **f == *field);
    if known {
        return Ok(());
    }
    let plain_builtin = def.builtin.is_some_and(|b| b.fields.is_empty());
    Err(ApiError::bad_request(if plain_builtin {
        format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    } else {
        format!("field label not supported: {field}")
    }))
}

/// A `resourceVersion` parameter: absent, or a number.
pub(crate) fn revision_parameter(call: &Call) -> ApiResult<Option<u64>> {
    let Some(text) = call.query.get("resourceVersion") else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        ApiError::unexpected(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

pub(crate) fn list_options_error(errors: &[FieldError]) -> ApiError {
    ApiError::invalid(&Subject::new("meta.k8s.io", "ListOptions", ""), errors)
}

pub(crate) fn get(call: &Call) -> ApiResult<Outcome> {
    Ok(Answer::Object(StatusCode::OK, call.stored()?).into())
}

struct Page {
    revision: u64,
    objects: Vec<Arc<Stored>>,
    continue_token: String,
    remaining: Option<usize>,
}

pub(crate) fn list(call: &Call) -> ApiResult<Outcome> {
    let selection = Selection::of(call)?;
    let page = page(call, &selection)?;
    Ok(Answer::Json(render(call, &page)).into())
}

fn page(call: &Call, selection: &Selection) -> ApiResult<Page> {
    let limit = match call.query.get("limit").map(str::parse::<i64>) {
        None => None,
        Some(Ok(limit)) => usize::try_from(limit).ok().filter(|l| *l > 0),
        Some(Err(e)) => return Err(ApiError::bad_request(format!("invalid limit: {e}"))),
    };
    if let Some(token) = call.query.get("continue") {
        if revision_parameter(call)?.is_some_and(|r| r != 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (snapshot, offset) = call.server.pages.resume(token)?;
        let rest = &snapshot.objects[offset..];
        let take = limit.unwrap_or(rest.len()).min(rest.len());
        let more = take < rest.len();
        return Ok(Page {
            revision: snapshot.revision,
            objects: rest[..take].to_vec(),
            continue_token: if more {
                Pages::token(&snapshot, offset + take)
            } else {
                String::new()
            },
            remaining: (more && selection.is_empty()).then(|| rest.len() - take),
        });
    }
    let (mut objects, revision) = state_at(call, selection)?;
    objects.retain(|o| selection.matches(o));
    let Some(limit) = limit.filter(|l| *l < objects.len()) else {
        return Ok(Page {
            revision,
            objects,
            continue_token: String::new(),
            remaining: None,
        });
    };
    let remaining = selection.is_empty().then(|| objects.len() - limit);
    let first = objects[..limit].to_vec();
    let snapshot = call.server.pages.keep(revision, objects);
    let continue_token = Pages::token(&snapshot, limit);
    Ok(Page {
        revision,
        objects: first,
        continue_token,
        remaining,
    })
}

/// The state that the request's `resourceVersion` and `resourceVersionMatch` ask for.
fn state_at(call: &Call, selection: &Selection) -> ApiResult<(Vec<Arc<Stored>>, u64)> {
    let store = &call.server.store;
    let scope = selection.narrow(call.scope(), call.def.namespaced);
    let asked = revision_parameter(call)?;
    let matching = call.query.get("resourceVersionMatch");
    let problem = match (matching, asked) {
        (Some("Exact"), Some(0)) => Some(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        (Some(_), None) => Some(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        (None, _) | (Some("Exact" | "NotOlderThan"), Some(_)) => None,
        (Some(other), _) => Some(FieldError::not_supported(
            "resourceVersionMatch",
            &json!(other),
            &["Exact".to_owned(), "NotOlderThan".to_owned(), String::new()],
        )),
    };
    if let Some(problem) = problem {
        return Err(list_options_error(&[problem]));
    }
    let current = store.revision();
    if let Some(asked) = asked.filter(|a| *a > current) {
        return Err(ApiError::future_revision(asked, current));
    }
    match (matching, asked) {
        (Some("Exact"), Some(revision)) => {
            let objects = store
                .list_at(&call.def.key, &scope, revision)
                .map_err(|_| {
                    ApiError::expired("The resourceVersion for the provided list is too old.")
                })?;
            Ok((objects, revision))
        }
        _ => Ok(store.list(&call.def.key, &scope)),
    }
}

fn render(call: &Call, page: &Page) -> Bytes {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if !page.continue_token.is_empty() {
        metadata["continue"] = Value::String(page.continue_token.clone());
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    match call.form {
        Form::Table => {
            let table = table::render(call, &metadata, &page.objects, true);
            Bytes::from(serde_json::to_vec(&table).expect("a JSON tree serialises"))
        }
        Form::Metadata => list_bytes(
            "PartialObjectMetadataList",
            "meta.k8s.io/v1",
            &metadata,
            page.objects.iter().map(|o| o.metadata_bytes()),
        ),
        Form::Object | Form::AggregatedDiscovery => {
            let api_version = call.api_version();
            // As in the real server, items of built-in lists do not repeat kind and version.
            let items = page.objects.iter().map(|object| {
                if call.def.builtin.is_some() {
                    let mut item = BytesMut::with_capacity(object.rest().len() + 1);
                    item.put_u8(b'{');
                    item.put_slice(object.rest());
                    item.freeze()
                } else {
                    object.bytes_as(&call.def.kind, &api_version)
                }
            });
            list_bytes(&call.def.list_kind, &api_version, &metadata, items)
        }
    }
}

fn list_bytes(
    kind: &str,
    api_version: &str,
    metadata: &Value,
    items: impl Iterator<Item = Bytes>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(4096);
    out.put_slice(b"{\"kind\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"apiVersion\":\"");
    out.put_slice(api_version.as_bytes());
    out.put_slice(b"\",\"metadata\":");
    out.put_slice(metadata.to_string().as_bytes());
    out.put_slice(b",\"items\":[");
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.put_slice(&item);
    }
    out.put_slice(b"]}");
    out.freeze()
}
