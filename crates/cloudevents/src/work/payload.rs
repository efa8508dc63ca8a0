//! The data of events about works, in each form, with fields in the order in which Go writes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use muster_api::work::{
    DeleteOption, FeedbackValue, FieldValue, Manifest, ManifestCondition, ManifestConfigOption,
    ManifestResourceMeta, ManifestResourceStatus, ManifestWorkExecutor, ManifestWorkSpec,
    ManifestWorkStatus, ManifestsTemplate, StatusFeedbackResult,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{CodecError, Form};

const DATA: &str = "data";

/// A spec with several manifests. The executor has the name that sdk-go gave it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    #[serde(default, deserialize_with = "null_as_default")]
    manifests: Vec<Manifest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delete_option: Option<Value>,
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    manifest_configs: Vec<Config>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    executer: Option<ManifestWorkExecutor>,
}

/// Options of manifests. The scrape type is left out where it is the default, which is what a
/// sender from before it was there does.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
struct Config(ManifestConfigOption);

impl Serialize for Config {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        // It is the last field.
        let default = r#","feedbackScrapeType":"Poll"}"#;
        if let Some(rest) = text.strip_suffix(default) {
            text = format!("{rest}}}");
        }
        let raw = RawValue::from_string(text);
        raw.map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

/// A spec with one manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Single {
    manifest: Manifest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delete_option: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config_option: Option<Value>,
}

fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn malformed(error: serde_json::Error) -> CodecError {
    CodecError::malformed(DATA, error)
}

/// The feedback value that is the whole status of an object, which a manifest event carries.
const CONTENT: &str = "status";

/// The design text calls the rules for orphans by another name, and does not nest them.
const RULES_OF_DESIGN: &str = "selectiveOrphaningRules";

fn delete_option(form: Form, option: Option<&DeleteOption>) -> Result<Option<Value>, CodecError> {
    let Some(option) = option else {
        return Ok(None);
    };
    let mut value = serde_json::to_value(option).map_err(malformed)?;
    if form != Form::Bundles
        && let Some(fields) = value.as_object_mut()
        && let Some(mut orphans) = fields.remove("selectivelyOrphans")
    {
        fields.insert(RULES_OF_DESIGN.to_owned(), orphans["orphaningRules"].take());
    }
    Ok(Some(value))
}

fn read_delete_option(value: Option<Value>) -> Result<Option<DeleteOption>, CodecError> {
    let Some(mut value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    if let Some(fields) = value.as_object_mut()
        && let Some(rules) = fields.remove(RULES_OF_DESIGN)
    {
        let orphans = serde_json::json!({ "orphaningRules": rules });
        fields.insert("selectivelyOrphans".to_owned(), orphans);
    }
    DeleteOption::deserialize(value)
        .map(Some)
        .map_err(malformed)
}

fn bundle(form: Form, spec: &ManifestWorkSpec) -> Result<Bundle, CodecError> {
    Ok(Bundle {
        manifests: spec.workload.manifests.clone(),
        delete_option: delete_option(form, spec.delete_option.as_ref())?,
        manifest_configs: spec.manifest_configs.iter().cloned().map(Config).collect(),
        executer: spec.executor.clone(),
    })
}

impl TryFrom<Bundle> for ManifestWorkSpec {
    type Error = CodecError;

    fn try_from(bundle: Bundle) -> Result<Self, CodecError> {
        let Bundle {
            manifests,
            delete_option,
            manifest_configs,
            executer,
        } = bundle;
        Ok(Self {
            workload: ManifestsTemplate { manifests },
            delete_option: read_delete_option(delete_option)?,
            manifest_configs: manifest_configs
                .into_iter()
                .map(|Config(config)| config)
                .collect(),
            executor: executer,
        })
    }
}

pub(super) fn encode_spec(
    form: Form,
    uid: &str,
    spec: &ManifestWorkSpec,
) -> Result<Vec<u8>, CodecError> {
    if form != Form::Manifest {
        return serde_json::to_vec(&bundle(form, spec)?).map_err(malformed);
    }
    let [manifest] = spec.workload.manifests.as_slice() else {
        return Err(not_one(uid, spec.workload.manifests.len()));
    };
    let config = spec.manifest_configs.first();
    let config_option = config
        .map(|config| {
            let mut value = serde_json::to_value(Config(config.clone())).map_err(malformed)?;
            // There is but one that it could be about.
            if let Some(fields) = value.as_object_mut() {
                fields.remove("resourceIdentifier");
            }
            Ok::<_, CodecError>(value)
        })
        .transpose()?;
    let single = Single {
        manifest: manifest.clone(),
        delete_option: delete_option(form, spec.delete_option.as_ref())?,
        config_option,
    };
    serde_json::to_vec(&single).map_err(malformed)
}

fn not_one(uid: &str, count: usize) -> CodecError {
    let uid = uid.to_owned();
    CodecError::NotOne { uid, count }
}

pub(super) fn decode_spec(form: Form, data: &[u8]) -> Result<ManifestWorkSpec, CodecError> {
    if form != Form::Manifest {
        let bundle: Bundle = serde_json::from_slice(data).map_err(malformed)?;
        return bundle.try_into();
    }
    let Single {
        manifest,
        delete_option,
        config_option,
    } = serde_json::from_slice(data).map_err(malformed)?;
    let mut manifest_configs = Vec::new();
    if let Some(mut config) = config_option.filter(|config| !config.is_null()) {
        // An option of its one manifest, whatever that is: everything of its name.
        config["resourceIdentifier"] = identifier_of(&manifest)?;
        manifest_configs.push(ManifestConfigOption::deserialize(config).map_err(malformed)?);
    }
    Ok(ManifestWorkSpec {
        workload: ManifestsTemplate {
            manifests: vec![manifest],
        },
        delete_option: read_delete_option(delete_option)?,
        manifest_configs,
        executor: None,
    })
}

/// Names the object of a manifest, as far as its text tells: Kubernetes makes the plural of a kind
/// by its lower case and an `s` unless somebody says otherwise, which only discovery knows.
fn identifier_of(manifest: &Manifest) -> Result<Value, CodecError> {
    let object = manifest.to_value().map_err(malformed)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = text(&object["kind"]).to_ascii_lowercase();
    Ok(serde_json::json!({
        "group": group,
        "resource": format!("{kind}s"),
        "namespace": text(&object["metadata"]["namespace"]),
        "name": text(&object["metadata"]["name"]),
    }))
}

/// A condition with its fields in Go's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OrderedCondition<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    last_transition_time: &'a Time,
    reason: &'a str,
    message: &'a str,
}

/// Go writes a list that was never made as null.
fn ordered(conditions: &[Condition]) -> Option<Vec<OrderedCondition<'_>>> {
    let ordered = conditions.iter().map(|condition| OrderedCondition {
        type_: &condition.type_,
        status: &condition.status,
        observed_generation: condition.observed_generation.filter(|it| *it != 0),
        last_transition_time: &condition.last_transition_time,
        reason: &condition.reason,
        message: &condition.message,
    });
    (!conditions.is_empty()).then(|| ordered.collect())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BundleStatus<'a> {
    conditions: Option<Vec<OrderedCondition<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_status: Vec<OneOfBundle<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneOfBundle<'a> {
    resource_meta: &'a ManifestResourceMeta,
    status_feedback: &'a StatusFeedbackResult,
    conditions: Option<Vec<OrderedCondition<'a>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SingleStatus<'a> {
    reconcile_status: Conditions<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_meta: Option<&'a ManifestResourceMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_status: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Conditions<'a> {
    conditions: Vec<OrderedCondition<'a>>,
}

fn conditions_of(conditions: &[Condition]) -> Conditions<'_> {
    Conditions {
        conditions: ordered(conditions).unwrap_or_default(),
    }
}

pub(super) fn encode_status(
    form: Form,
    uid: &str,
    status: &ManifestWorkStatus,
) -> Result<Vec<u8>, CodecError> {
    let manifests = &status.resource_status.manifests;
    if form != Form::Manifest {
        let one = manifests.iter().map(|manifest| OneOfBundle {
            resource_meta: &manifest.resource_meta,
            status_feedback: &manifest.status_feedback,
            conditions: ordered(&manifest.conditions),
        });
        let resource_status = one.collect();
        let status = BundleStatus {
            conditions: ordered(&status.conditions),
            resource_status,
        };
        return serde_json::to_vec(&status).map_err(malformed);
    }
    if manifests.len() > 1 {
        return Err(not_one(uid, manifests.len()));
    }
    let manifest = manifests.first();
    let values = manifest.map(|manifest| manifest.status_feedback.values.as_slice());
    let mut values = values.unwrap_or_default().iter();
    let content = values.find(|value| value.name == CONTENT);
    let content = content.and_then(|value| value.value.json_raw.as_deref());
    let single = SingleStatus {
        reconcile_status: conditions_of(&status.conditions),
        resource_meta: manifest.map(|manifest| &manifest.resource_meta),
        content_status: content
            .map(serde_json::from_str)
            .transpose()
            .map_err(malformed)?,
    };
    serde_json::to_vec(&single).map_err(malformed)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleStatusIn {
    #[serde(default)]
    manifest_bundle: Option<Bundle>,
    #[serde(default, deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
    #[serde(default, deserialize_with = "null_as_default")]
    resource_status: StatusList,
}

/// A list, or as the schema of the design text has it an object around one.
#[derive(Deserialize)]
#[serde(untagged)]
enum StatusList {
    List(Vec<ManifestCondition>),
    Object {
        #[serde(rename = "manifestConditions", default)]
        manifest_conditions: Vec<ManifestCondition>,
    },
}

impl Default for StatusList {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SingleStatusIn {
    #[serde(default)]
    reconcile_status: ConditionsIn,
    #[serde(default)]
    resource_meta: Option<ManifestResourceMeta>,
    #[serde(default)]
    content_status: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
struct ConditionsIn {
    #[serde(default, deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
}

pub(super) fn decode_status(
    form: Form,
    data: &[u8],
) -> Result<(Option<ManifestWorkSpec>, ManifestWorkStatus), CodecError> {
    let (spec, conditions, manifests) = if form == Form::Manifest {
        let single: SingleStatusIn = serde_json::from_slice(data).map_err(malformed)?;
        let content = single.content_status.map(|content| FeedbackValue {
            name: CONTENT.to_owned(),
            value: FieldValue::json_raw(content.get()),
        });
        let manifest = single.resource_meta.map(|resource_meta| ManifestCondition {
            resource_meta,
            status_feedback: StatusFeedbackResult {
                values: content.into_iter().collect(),
            },
            conditions: Vec::new(),
        });
        let manifests = manifest.into_iter().collect();
        (None, single.reconcile_status.conditions, manifests)
    } else {
        let status: BundleStatusIn = serde_json::from_slice(data).map_err(malformed)?;
        let spec = status.manifest_bundle.map(TryInto::try_into).transpose()?;
        let manifests = match status.resource_status {
            StatusList::List(manifests)
            | StatusList::Object {
                manifest_conditions: manifests,
            } => manifests,
        };
        (spec, status.conditions, manifests)
    };
    let status = ManifestWorkStatus {
        conditions,
        resource_status: ManifestResourceStatus { manifests },
    };
    Ok((spec, status))
}
