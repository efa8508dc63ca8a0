//! Which client ids belong to whom.
//!
//! Whoever connects with a client id pushes off the client that has it, and gets its queue. So an id
//! has to be derived from the name of whoever uses it, or be listed for it.

use std::collections::HashMap;

use muster_cloudevents::access::Principal;

/// What follows the name of a cluster in the client ids of its agent: muster's, and sdk-go's.
const OF_AGENTS: [&str; 2] = ["-work-agent", "-work-agent-client"];
/// What follows the id of a source in the client id of a hub of muster's.
const OF_SOURCES: &str = "-source";
/// Client ids that mqtt5 assigns to clients that have none: this and 32 hex digits, at random.
const ASSIGNED: &str = "auto-";
const ASSIGNED_DIGITS: usize = 32;

/// Who may use which client id.
#[derive(Debug, Default)]
pub(crate) struct ClientIds {
    listed: HashMap<String, Principal>,
    /// The names that are known, of principals and of their logins, with whose they are.
    names: HashMap<String, Vec<Principal>>,
    /// Whether clients may connect whose names are not known before, as by certificate.
    open: bool,
}

impl ClientIds {
    /// The id is this principal's, whatever its name. Whether it was nobody else's.
    pub(crate) fn list(&mut self, client_id: &str, principal: &Principal) -> bool {
        let before = self.listed.insert(client_id.to_owned(), principal.clone());
        before.is_none_or(|before| before == *principal)
    }

    /// A principal is known by this name.
    pub(crate) fn name(&mut self, name: &str, principal: &Principal) {
        let known = self.names.entry(name.to_owned()).or_default();
        if !known.contains(principal) {
            known.push(principal.clone());
        }
    }

    /// Clients may connect whose names are not known before.
    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Whether a principal that has logged in by this name may use a client id.
    pub(crate) fn may_use(
        &self,
        principal: &Principal,
        login: Option<&str>,
        client_id: &str,
    ) -> bool {
        let own = match principal {
            // An operator may do everything.
            Principal::Everything => return true,
            Principal::Agent(name) | Principal::Source(name) => name.as_str(),
        };
        if let Some(owner) = self.listed.get(client_id) {
            return owner == principal;
        }
        if is_assigned(client_id) {
            return true;
        }
        if let Some(owner) = fixed_owner(client_id) {
            return owner == *principal;
        }
        [Some(own), login]
            .into_iter()
            .flatten()
            .any(|name| self.is_derived(name, principal, client_id))
    }

    fn is_derived(&self, name: &str, principal: &Principal, client_id: &str) -> bool {
        let Some(rest) = client_id.strip_prefix(name) else {
            return false;
        };
        match rest.chars().next() {
            None => true,
            // Another name may go on like this: `edge-2-agent` is of `edge-2`, not of `edge`.
            Some('-') => !self.open && !self.has_longer_name(name, principal, client_id),
            Some(next) => !is_part_of_name(next),
        }
    }

    /// Whether somebody else has a name that says more of the id.
    fn has_longer_name(&self, name: &str, principal: &Principal, client_id: &str) -> bool {
        let ends = client_id
            .char_indices()
            .filter(|(at, next)| *at > name.len() && (*next == '-' || !is_part_of_name(*next)))
            .map(|(at, _)| at)
            .chain([client_id.len()]);
        ends.filter_map(|end| self.names.get(&client_id[..end]))
            .flatten()
            .any(|other| other != principal)
    }
}

/// The names of clusters and sources are parts of topics and have only these.
const fn is_part_of_name(letter: char) -> bool {
    matches!(letter, 'a'..='z' | 'A'..='Z' | '0'..='9' | '-')
}

fn is_assigned(client_id: &str) -> bool {
    let digits = client_id.strip_prefix(ASSIGNED);
    digits.is_some_and(|digits| {
        digits.len() == ASSIGNED_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Whose an id of a form is that tells, also where nobody of that name is known.
fn fixed_owner(client_id: &str) -> Option<Principal> {
    let of_agent = |suffix: &&str| client_id.strip_suffix(*suffix);
    if let Some(cluster) = OF_AGENTS.iter().find_map(of_agent) {
        return Some(Principal::Agent(cluster.to_owned()));
    }
    let source = client_id.strip_suffix(OF_SOURCES)?;
    Some(Principal::Source(source.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Principal {
        Principal::Agent(name.to_owned())
    }

    fn source(name: &str) -> Principal {
        Principal::Source(name.to_owned())
    }

    fn known() -> ClientIds {
        let mut ids = ClientIds::default();
        for name in ["edge", "edge-1", "edge-2"] {
            ids.name(name, &agent(name));
        }
        ids.name("hub1", &source("hub1"));
        ids.name("the-hub", &source("hub1"));
        assert!(ids.list("factory-7", &agent("edge-1")));
        ids
    }

    #[test]
    fn an_id_that_is_derived_from_a_name_is_of_whoever_has_the_name() {
        let ids = known();
        for (client_id, owner) in [
            ("edge-1", agent("edge-1")),
            ("edge-1-work-agent", agent("edge-1")),
            ("edge-1-work-agent-client", agent("edge-1")),
            ("edge-1-anything", agent("edge-1")),
            ("edge-1:anything", agent("edge-1")),
            ("edge-2.x", agent("edge-2")),
            ("edge", agent("edge")),
            ("edge-x", agent("edge")),
            ("edge-10", agent("edge")),
            ("edge-work-agent", agent("edge")),
            ("hub1", source("hub1")),
            ("hub1-source", source("hub1")),
            ("hub1-client-0", source("hub1")),
            ("factory-7", agent("edge-1")),
        ] {
            for asks in [
                agent("edge"),
                agent("edge-1"),
                agent("edge-2"),
                source("hub1"),
            ] {
                let may = ids.may_use(&asks, None, client_id);
                assert_eq!(may, asks == owner, "{asks:?}, {client_id}");
            }
            assert!(ids.may_use(&Principal::Everything, None, client_id));
        }
    }

    #[test]
    fn an_id_without_a_name_in_it_has_to_be_listed() {
        let mut ids = known();
        for client_id in [
            "agent",
            "edge1",
            "edge-",
            "xedge-1",
            "",
            "auto-1",
            "-work-agent",
        ] {
            assert!(
                !ids.may_use(&agent("edge-1"), None, client_id),
                "{client_id}"
            );
        }
        assert!(
            !ids.list("factory-7", &agent("edge-2")),
            "it is listed twice"
        );
    }

    #[test]
    fn the_name_of_a_login_counts_like_that_of_its_principal() {
        let ids = known();
        assert!(ids.may_use(&source("hub1"), Some("the-hub"), "the-hub-1"));
        assert!(!ids.may_use(&agent("edge"), Some("edge"), "the-hub-1"));
        assert!(!ids.may_use(&agent("edge"), Some("the"), "the-hub-1"));
    }

    #[test]
    fn the_broker_assigns_ids_to_anybody() {
        let id = format!("auto-{:032x}", 7);
        assert!(known().may_use(&agent("edge-1"), None, &id));
    }

    /// A cluster that is known by its certificate only is not on any list.
    #[test]
    fn names_that_are_not_known_before_are_kept_too() {
        let mut ids = ClientIds::default();
        ids.name("edge", &agent("edge"));
        ids.open();
        for client_id in ["edge-7", "edge-7-work-agent", "edge-7-client"] {
            assert!(!ids.may_use(&agent("edge"), None, client_id), "{client_id}");
        }
        assert!(ids.may_use(&agent("edge-7"), None, "edge-7-work-agent"));
        assert!(ids.may_use(&agent("edge-7"), None, "edge-7"));
        assert!(ids.may_use(&agent("edge"), None, "edge-work-agent"));
        assert!(ids.may_use(&agent("edge"), None, "edge:7"));
    }
}
