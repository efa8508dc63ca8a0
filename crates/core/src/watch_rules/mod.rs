//! Watch rules as pure state: rules and served types in, streams and routes out.
//!
//! ```text
//! WatchRule ─────────┐ compile_*()   ┌────────────────┐ snapshot()
//! ClusterWatchRule ──┴──────────────►│ RuleStoreState │─────────────┐
//!                                    └────────────────┘             ▼
//!                                    ┌────────────────┐       plan_rules() ─► RulePlan: streams,
//! discovery ──── observe(now, Scan) ►│    Catalog     │─────────────▲         and what each rule gets
//!                                    └────────────────┘             │
//!                                                       Exclusions ─┘
//!
//! RulePlan ─► routes(): sinks and their Audience      object ─► sanitize() ─► content_hash()
//! object ───► Audience::of() ─► Interest: which rules
//! ```
//!
//! What a rule selects is defined once, in `selector`: the planner asks it about types, the router
//! about objects.
//!
//! # Scenarios
//!
//! S is a scenario of the facts on watch rules, C an open case; the tests are under `tests`. From S56 on
//! they are about events, watches and sinks: the tests there say in their comments which they are
//! about (`rule_events`, the actors' `rules` and `sinks`, `muster-gitfiles`, the stories `watch_rules`),
//! and ADR 0014 and 0015 what is not built.
//!
//! | Scenario | Test |
//! |---|---|
//! | S1 to S7 | `selector::resources_are_named_in_any_case_and_by_two_wildcards` |
//! | S8 to S11 | `selector::operations_are_all_or_those_named` |
//! | S12 to S16 | `selector::groups_are_all_or_those_named` |
//! | S17 to S19 | `selector::versions_are_all_or_those_named` |
//! | S20 | `selector::facets_of_two_items_do_not_mix` |
//! | S21, S26 | `routing::an_event_goes_to_a_sink_once` |
//! | S22, S23, S24 | `selector::scopes_do_not_mix` |
//! | S25, C129 | `selector::a_watch_rule_stays_in_its_namespace`, `plan::a_watch_rule_has_streams_of_its_namespace` |
//! | S27, S29 | `selector::labels_are_those_of_kubernetes`, `rule::faults_name_the_field` |
//! | S30, S31, S35, S62 | `store::only_a_change_gives_a_revision` |
//! | S32 | `store::a_snapshot_never_changes` |
//! | S33 | `store::writers_and_readers_see_whole_states` |
//! | S34, C137 | `store::there_is_no_snapshot_before_both_kinds_are_listed` |
//! | S36, S37 | `plan::groups_versions_and_resources_multiply` |
//! | S38 | `plan::one_type_is_one_stream` |
//! | S39 | `plan::the_scope_decides` |
//! | S40 | `unresolved::excluded_types_say_so` |
//! | S41 | `unresolved::what_cannot_be_watched_says_so` |
//! | S42, S52, C133 | `plan::a_broken_group_keeps_its_streams_and_stops_no_other`, `catalog::an_error_keeps_types_for_as_long_as_it_lasts` |
//! | S43, S44, S45, S51, C131 | `plan::a_type_that_is_installed_later_is_taken_up` |
//! | S46, S47, C141 | `plan::versions_are_chosen_and_objects_reported_once` |
//! | S48, C141 | `unresolved::a_name_in_two_groups_is_refused` |
//! | S49 | `plan::a_wildcard_is_all_that_can_be_watched` |
//! | S50 | `unresolved::two_resources_of_one_kind_are_refused` |
//! | S53 | `catalog::a_type_that_is_gone_stays_for_its_grace` |
//! | S54 | not built: a type is there as soon as it is served (ADR 0015) |
//! | S55 | `plan::a_namespace_and_the_cluster_are_two_streams` |
//! | C138 | order of rule, type and sink: `plan::the_order_of_arrival_means_nothing` |
//! | C140 | `plan::the_core_group_keeps_its_empty_name` |
//! | S94, S100 | `sanitize::metadata_of_the_server_goes` |
//! | S95 | `sanitize::annotations_and_labels_of_tools_go` |
//! | S96 | `sanitize::maps_without_entries_are_absent` |
//! | S97 | `sanitize::addresses_of_a_service_go` |
//! | S98 | `sanitize::choices_for_a_service_stay` |
//! | S99 | `sanitize::node_and_volume_go` |
//! | S101 | `sanitize::content_outside_of_spec_stays` |

mod catalog;
mod exclusions;
mod plan;
mod resolve;
mod routing;
mod rule;
mod sanitize;
mod selector;
mod store;
#[cfg(test)]
mod tests;

pub use catalog::{Answer, Catalog, FoundResource, GroupVersion, REMOVAL_GRACE, Scan, ServedType};
pub use exclusions::Exclusions;
pub use plan::{RulePart, RulePlan, Stream, StreamKey, Takers, plan_rules};
pub use resolve::{Unresolved, UnresolvedReason};
pub use routing::{Audience, Interest, Routes, RuleNames};
pub use rule::{
    CompiledRule, RuleError, RuleKind, RuleName, compile_cluster_watch_rule, compile_watch_rule,
};
pub use sanitize::{Ordered, content_hash, sanitize};
pub use selector::{Facet, ItemSelector, Operation, Operations, Reach, ResourcePattern, TypeFacts};
pub use store::{RuleSnapshot, RuleStoreState};
