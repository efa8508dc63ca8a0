//! How a link to a bus goes, for readiness.

use muster_workclient::events::ConnectionState;

use crate::supervision::StreamHealth;

/// Says it.
pub(crate) fn say(health: &StreamHealth, state: &ConnectionState) {
    match state {
        ConnectionState::Connecting => {}
        ConnectionState::Subscribed => health.alive(),
        ConnectionState::Refused { reason, since } => {
            health.failing(format_args!("{reason} (refused since {since})"));
        }
        ConnectionState::Lost { reason, since } => {
            health.failing(format_args!("{reason} (lost at {since})"));
        }
    }
}
