//! `work.open-cluster-management.io/v1`: ManifestWork and AppliedManifestWork.

mod applied;
mod manifest;
mod raw;
mod spec;
mod status;

pub use applied::{
    AppliedManifestResourceMeta, AppliedManifestWork, AppliedManifestWorkSpec,
    AppliedManifestWorkStatus,
};
pub use manifest::Manifest;
pub use raw::RawManifestWork;
pub use spec::{
    ConditionRule, ConditionRuleType, DeleteOption, DeletePropagationPolicyType, FeedBackType,
    FeedbackRule, FeedbackScrapeType, IgnoreField, IgnoreFieldsCondition, JsonPath,
    ManifestConfigOption, ManifestWork, ManifestWorkExecutor, ManifestWorkExecutorSubject,
    ManifestWorkExecutorSubjectType, ManifestWorkSpec, ManifestWorkSubjectServiceAccount,
    ManifestsTemplate, OrphaningRule, ResourceIdentifier, SelectivelyOrphan, ServerSideApplyConfig,
    UpdateStrategy, UpdateStrategyType,
};
pub use status::{
    FeedbackValue, FieldValue, ManifestCondition, ManifestResourceMeta, ManifestResourceStatus,
    ManifestWorkStatus, StatusFeedbackResult, ValueType,
};
