//! ManifestWorks as events.
//!
//! A source encodes specs and decodes statuses, an agent the other way round. What the two forms of
//! the design text lack (metadata, sequence ids, hashes) is left out there, and not asked for.

mod check;
mod hash;
mod metadata;
mod payload;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use muster_api::constants::{MANIFEST_WORK_FINALIZER, MANIFESTS_DELETED};
use muster_api::work::{ManifestWork, ManifestWorkSpec, ManifestWorkStatus};

pub use check::{MOST_MANIFEST_BYTES, check_manifests};
pub use hash::status_hash;
pub use metadata::MOST_METADATA_BYTES;

use crate::event::extension::{
    CLUSTER_NAME, DELETION_TIMESTAMP, LOG_TRACING, METADATA, ORIGINAL_SOURCE, RESOURCE_ID,
    RESOURCE_VERSION, SEQUENCE_ID, STATUS_HASH, TRACE_PARENT, TRACE_STATE,
};
use crate::protocol::Codec;
use crate::resync::{Resource, ResourceVersion};
use crate::{Action, DataType, Event, EventType, ExtensionError, Stamp, SubResource, TypeError};

/// Annotations of a work with the trace that it is part of, and the extensions that carry them in
/// its events, both ways.
const TRACE: [(&str, &str); 2] = [
    ("muster.dev/traceparent", TRACE_PARENT),
    ("muster.dev/tracestate", TRACE_STATE),
];

/// Longest value of these: `tracestate` has at most so many, and no other is longer.
const MOST_TRACE_BYTES: usize = 512;

const GROUP: &str = "io.open-cluster-management.works";
const VERSION: &str = "v1alpha1";

/// Label with the source of a work, on an agent.
pub const SOURCE_LABEL: &str = "cloudevents.open-cluster-management.io/originalsource";
/// Annotation with the data type that a work came in, on an agent.
pub const DATA_TYPE_ANNOTATION: &str = "cloudevents.open-cluster-management.io/datatype";
/// Most bytes of the status of an object that a manifest event carries, as JSON.
pub const MOST_CONTENT_BYTES: usize = 64 * 1024;

/// Whether a work came in the form of the design text that carries the whole status of its object
/// back, as `contentStatus`.
pub fn carries_content(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let came = annotations.and_then(|annotations| annotations.get(DATA_TYPE_ANNOTATION));
    came.is_some_and(|came| *came == Form::Manifest.data_type().to_string())
}

/// Annotation with the sequence id of the status that a work has, at a source.
pub const SEQUENCE_ANNOTATION: &str = "cloudevents.open-cluster-management.io/sequenceid";
/// Annotations with this prefix travel along, to tie log lines together.
pub const LOG_PREFIX: &str = "logging.open-cluster-management.io/";

/// How a work is put into data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// sdk-go's `manifestbundles`.
    Bundles,
    /// The design text's `manifestbundle`.
    Bundle,
    /// The design text's `manifest`, for works with one manifest.
    Manifest,
}

const FORMS: [(Form, &str); 3] = [
    (Form::Bundles, "manifestbundles"),
    (Form::Bundle, "manifestbundle"),
    (Form::Manifest, "manifest"),
];

impl Form {
    /// The data type of its events.
    pub fn data_type(self) -> DataType {
        let resource = match self {
            Self::Bundles => FORMS[0].1,
            Self::Bundle => FORMS[1].1,
            Self::Manifest => FORMS[2].1,
        };
        DataType::new(GROUP, VERSION, resource)
    }

    fn of(data_type: &DataType) -> Result<Self, CodecError> {
        let mut forms = FORMS.into_iter();
        let known = forms.find(|(_, resource)| data_type.resource == *resource);
        match known {
            Some((form, _)) if data_type.group == GROUP && data_type.version == VERSION => Ok(form),
            _ => Err(CodecError::DataType(data_type.clone())),
        }
    }
}

/// An event is not, or cannot be made, what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// It does not say what it is.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// It is of something else than works.
    #[error("unsupported cloudevents data type {0}")]
    DataType(DataType),
    /// It is of the other half.
    #[error("unsupported subresource {0}")]
    SubResource(SubResource),
    /// An extension is not as it has to be.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// A part of it cannot be read.
    #[error("failed to read {part} of the event: {error}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// What is wrong.
        error: String,
    },
    /// Its metadata are too long for an event.
    #[error("the metadata have {bytes} bytes, and an event takes {MOST_METADATA_BYTES}{longest}")]
    Metadata {
        /// Their size as JSON.
        bytes: usize,
        /// What of them is longest.
        longest: String,
    },
    /// The manifests cannot be applied by anybody. The text is sdk-go's.
    #[error("{0}")]
    Manifests(String),
    /// A work on an agent that came from nowhere.
    #[error("failed to find originalsource from the work {0}")]
    NoSource(String),
    /// The form of the design text for one manifest cannot carry another number.
    #[error("the work {uid} has {count} manifests, and a manifest event carries one")]
    NotOne {
        /// The work.
        uid: String,
        /// Its manifests.
        count: usize,
    },
}

impl CodecError {
    fn malformed(part: &'static str, error: impl std::fmt::Display) -> Self {
        let error = error.to_string();
        Self::Malformed { part, error }
    }
}

impl Resource for ManifestWork {
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    fn version(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// Works in one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCodec(pub Form);

impl Codec for WorkCodec {
    type Resource = ManifestWork;
    type Error = CodecError;

    fn data_type(&self) -> DataType {
        self.0.data_type()
    }

    /// The two forms of the design text go together.
    fn accepts(&self, data_type: &DataType) -> bool {
        let form = Form::of(data_type);
        form.is_ok_and(|form| (form == Form::Bundles) == (self.0 == Form::Bundles))
    }

    fn cluster_of<'a>(&self, work: &'a ManifestWork) -> &'a str {
        namespace_of(work)
    }

    fn source_of<'a>(&self, work: &'a ManifestWork) -> Option<&'a str> {
        let labels = work.metadata.labels.as_ref()?;
        labels.get(SOURCE_LABEL).map(String::as_str)
    }

    fn status_hash(&self, work: &ManifestWork) -> String {
        work.status
            .as_ref()
            .map_or_else(|| status_hash(&ManifestWorkStatus::default()), status_hash)
    }

    fn says_gone(&self, work: &ManifestWork) -> bool {
        let conditions = work.status.iter().flat_map(|status| &status.conditions);
        let mut deleted = conditions.filter(|condition| condition.type_ == MANIFESTS_DELETED);
        deleted.any(|condition| condition.status == "True")
    }

    fn last_sequence_id<'a>(&self, work: &'a ManifestWork) -> Option<&'a str> {
        let annotations = work.metadata.annotations.as_ref()?;
        annotations.get(SEQUENCE_ANNOTATION).map(String::as_str)
    }

    fn encode_spec(
        &self,
        stamp: Stamp,
        source: &str,
        action: Action,
        work: &ManifestWork,
    ) -> Result<Event, CodecError> {
        encode_spec(self.0, stamp, source, action, work)
    }

    fn encode_orphan(
        &self,
        stamp: Stamp,
        source: &str,
        cluster: &str,
        orphan: &ResourceVersion,
    ) -> Event {
        encode_orphan(self.0, stamp, source, cluster, &orphan.id, orphan.version)
    }

    fn decode_spec(&self, event: &Event) -> Result<ManifestWork, CodecError> {
        decode_spec(event)
    }

    fn encode_status(
        &self,
        stamp: Stamp,
        agent: &str,
        action: Action,
        sequence_id: &str,
        work: &ManifestWork,
    ) -> Result<Event, CodecError> {
        // In the form in which its source has sent it.
        let annotations = work.metadata.annotations.as_ref();
        let came = annotations.and_then(|annotations| annotations.get(DATA_TYPE_ANNOTATION));
        let mut forms = FORMS.into_iter().map(|(form, _)| form);
        let form = came.and_then(|came| forms.find(|form| form.data_type().to_string() == *came));
        encode_status(
            form.unwrap_or(self.0),
            stamp,
            agent,
            action,
            sequence_id,
            work,
        )
    }

    fn decode_status(&self, event: &Event) -> Result<ManifestWork, CodecError> {
        decode_status(event)
    }
}

/// The uid of a work that a source makes: the same for each try.
///
/// ```
/// assert_eq!(
///     muster_cloudevents::work::uid("hub-one", "edge-a", "demo-work"),
///     "feff1176-ace6-586b-a395-3f189c8ed350"
/// );
/// ```
pub fn uid(source: &str, namespace: &str, name: &str) -> String {
    let resource = "manifestworks.work.open-cluster-management.io";
    let text = format!("{source}-{resource}-{namespace}-{name}");
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, text.as_bytes()).to_string()
}

/// The event that sends a work from a source to its agent.
///
/// # Errors
///
/// The form cannot carry the work.
pub fn encode_spec(
    form: Form,
    stamp: Stamp,
    source: &str,
    action: Action,
    work: &ManifestWork,
) -> Result<Event, CodecError> {
    let event_type = EventType::new(form.data_type(), SubResource::Spec, action);
    let mut event = Event::new(stamp, source, &event_type)
        .with(RESOURCE_ID, work.uid())
        .with(RESOURCE_VERSION, work.version().to_string())
        .with(CLUSTER_NAME, namespace_of(work));
    event = traced(event, work);
    if form == Form::Bundles {
        let (meta, tracing) = if work.is_deleting() {
            (
                metadata::encode_within(&work.metadata, metadata::MOST_LAST_BYTES)?,
                log_tracing(work, metadata::MOST_LAST_BYTES),
            )
        } else {
            (
                metadata::encode(&work.metadata)?,
                log_tracing(work, MOST_METADATA_BYTES),
            )
        };
        event = event
            .with(ORIGINAL_SOURCE, "")
            .with(METADATA, meta)
            .with(LOG_TRACING, tracing);
    }
    if let Some(time) = &work.metadata.deletion_timestamp {
        let mut event = event.with(DELETION_TIMESTAMP, time.0.to_string());
        if form != Form::Bundles {
            // So the design text has it, though there is no content.
            event.content_type = Some(crate::event::JSON.to_owned());
        }
        return Ok(event);
    }
    check_manifests(&work.spec.workload.manifests).map_err(CodecError::Manifests)?;
    Ok(event.with_json(payload::encode_spec(form, work.uid(), &work.spec)?))
}

/// The deletion of a work that a source does not have and an agent has, in the agent's version.
pub fn encode_orphan(
    form: Form,
    stamp: Stamp,
    source: &str,
    cluster: &str,
    uid: &str,
    version: i64,
) -> Event {
    let event_type = EventType::new(form.data_type(), SubResource::Spec, Action::ResyncResponse);
    let time = stamp.time;
    let event = Event::new(stamp, source, &event_type)
        .with(DELETION_TIMESTAMP, time.to_string())
        .with(CLUSTER_NAME, cluster)
        .with(RESOURCE_ID, uid)
        .with(RESOURCE_VERSION, version.to_string());
    if form == Form::Bundles {
        event.with(ORIGINAL_SOURCE, "")
    } else {
        event
    }
}

/// The work that an agent gets by an event; one that is being deleted has no spec.
///
/// # Errors
///
/// The event is of something else, or lacks what it takes.
pub fn decode_spec(event: &Event) -> Result<ManifestWork, CodecError> {
    let (form, data_type) = form_of(event, SubResource::Spec)?;
    let deleted = event.time_of(DELETION_TIMESTAMP)?;
    let uid = event.require(RESOURCE_ID)?;
    let version = match event.require_integer(RESOURCE_VERSION) {
        // The gRPC broker of OCM leaves it out where it deletes what its source does not have.
        Err(ExtensionError::Missing(_)) if deleted.is_some() => 0,
        version => version?,
    };
    let cluster = match event.require(CLUSTER_NAME) {
        // The examples of the design text leave it out: there the topic tells.
        Err(ExtensionError::Missing(_)) if form != Form::Bundles => "",
        cluster => cluster?,
    };
    let mut meta = match event.get(METADATA) {
        Some(text) => metadata::decode(text)?,
        None => ObjectMeta::default(),
    };
    meta.uid = Some(uid.to_owned());
    meta.name.get_or_insert_with(|| uid.to_owned());
    meta.namespace = Some(cluster.to_owned());
    meta.resource_version = None;
    meta.generation = Some(version);
    let labels = meta.labels.get_or_insert_default();
    labels.insert(SOURCE_LABEL.to_owned(), event.source.clone());
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(DATA_TYPE_ANNOTATION.to_owned(), data_type.to_string());
    annotations.extend(tracing_of(event)?);
    for (annotation, extension) in TRACE {
        if let Some(value) = event.get(extension) {
            annotations.insert(annotation.to_owned(), value.to_owned());
        }
    }
    let spec = if let Some(time) = deleted {
        meta.deletion_timestamp = Some(metadata::time(time));
        // So that the agent cleans up, whatever the source has put there.
        meta.finalizers = Some(vec![MANIFEST_WORK_FINALIZER.to_owned()]);
        ManifestWorkSpec::default()
    } else {
        let spec = payload::decode_spec(form, &event.data)?;
        check::check_received(&spec.workload.manifests).map_err(CodecError::Manifests)?;
        spec
    };
    Ok(ManifestWork {
        metadata: meta,
        spec,
        status: None,
    })
}

/// The event that sends the status of a work from an agent to its source.
///
/// # Errors
///
/// The work does not say where it came from, or the form cannot carry its status.
pub fn encode_status(
    form: Form,
    stamp: Stamp,
    agent: &str,
    action: Action,
    sequence_id: &str,
    work: &ManifestWork,
) -> Result<Event, CodecError> {
    let labels = work.metadata.labels.as_ref();
    let source = labels.and_then(|labels| labels.get(SOURCE_LABEL));
    let source = source.ok_or_else(|| CodecError::NoSource(work.uid().to_owned()))?;
    let event_type = EventType::new(form.data_type(), SubResource::Status, action);
    let status = work.status.clone().unwrap_or_default();
    let mut event = Event::new(stamp, agent, &event_type)
        .with(RESOURCE_ID, work.uid())
        .with(RESOURCE_VERSION, work.version().to_string())
        .with(CLUSTER_NAME, namespace_of(work))
        .with(ORIGINAL_SOURCE, source);
    event = traced(event, work);
    if form == Form::Bundles {
        // The source has them anyway: what is too long must not hold up the status.
        let most = if WorkCodec(form).says_gone(work) {
            metadata::MOST_LAST_BYTES
        } else {
            MOST_METADATA_BYTES
        };
        event = event
            .with(SEQUENCE_ID, sequence_id)
            .with(STATUS_HASH, status_hash(&status))
            .with(METADATA, metadata::encode_within(&work.metadata, most)?)
            .with(LOG_TRACING, log_tracing(work, most));
    }
    Ok(event.with_json(payload::encode_status(form, work.uid(), &status)?))
}

/// The work whose status a source gets by an event. Its spec is there only if the event echoes it.
///
/// # Errors
///
/// The event is of something else, or lacks what it takes.
pub fn decode_status(event: &Event) -> Result<ManifestWork, CodecError> {
    let (form, _) = form_of(event, SubResource::Status)?;
    let uid = event.require(RESOURCE_ID)?;
    let version = event.require_integer(RESOURCE_VERSION)?;
    let mut meta = match event.get(METADATA) {
        Some(text) => metadata::decode(text)?,
        None => ObjectMeta::default(),
    };
    meta.uid = Some(uid.to_owned());
    meta.name.get_or_insert_with(|| uid.to_owned());
    if let Some(cluster) = event.get(CLUSTER_NAME) {
        meta.namespace = Some(cluster.to_owned());
    }
    // The agent counts its own changes there.
    meta.resource_version = None;
    meta.generation = Some(version);
    if form == Form::Bundles {
        let sequence_id = event.require(SEQUENCE_ID)?.to_owned();
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(SEQUENCE_ANNOTATION.to_owned(), sequence_id);
    }
    let (spec, status): (_, ManifestWorkStatus) = payload::decode_status(form, &event.data)?;
    Ok(ManifestWork {
        metadata: meta,
        spec: spec.unwrap_or_default(),
        status: Some(status),
    })
}

fn namespace_of(work: &ManifestWork) -> &str {
    work.metadata.namespace.as_deref().unwrap_or_default()
}

fn form_of(event: &Event, half: SubResource) -> Result<(Form, DataType), CodecError> {
    let EventType {
        data_type,
        sub_resource,
        ..
    } = event.event_type()?;
    if sub_resource != half {
        return Err(CodecError::SubResource(sub_resource));
    }
    Ok((Form::of(&data_type)?, data_type))
}

/// With the trace that the work is part of.
fn traced(event: Event, work: &ManifestWork) -> Event {
    let annotations = work.metadata.annotations.as_ref();
    TRACE
        .into_iter()
        .fold(event, |event, (annotation, extension)| {
            match annotations.and_then(|annotations| annotations.get(annotation)) {
                Some(value) if value.len() <= MOST_TRACE_BYTES => event.with(extension, &**value),
                _ => event,
            }
        })
}

/// The annotations that tie log lines together, as JSON; none of them if that is too long.
fn log_tracing(work: &ManifestWork, most: usize) -> String {
    let annotations = work.metadata.annotations.iter().flatten();
    let tracing: BTreeMap<_, _> = annotations
        .filter(|(name, _)| name.starts_with(LOG_PREFIX))
        .collect();
    // A map of texts always encodes.
    let text = serde_json::to_string(&tracing).unwrap_or_default();
    if text.len() <= most {
        text
    } else {
        "{}".to_owned()
    }
}

fn tracing_of(event: &Event) -> Result<BTreeMap<String, String>, CodecError> {
    let Some(text) = event.get(LOG_TRACING).filter(|text| !text.is_empty()) else {
        return Ok(BTreeMap::new());
    };
    let mut tracing: BTreeMap<String, String> =
        serde_json::from_str(text).map_err(|error| CodecError::malformed(LOG_TRACING, error))?;
    tracing.retain(|name, _| name.starts_with(LOG_PREFIX));
    Ok(tracing)
}

/// When a work that an agent has cleaned up says so.
pub fn deleted_condition(cluster: &str, now: Timestamp) -> Condition {
    Condition {
        type_: "Deleted".to_owned(),
        status: "True".to_owned(),
        reason: "ManifestsDeleted".to_owned(),
        message: format!("The manifests are deleted from the cluster {cluster}"),
        last_transition_time: metadata::time(now),
        observed_generation: None,
    }
}
