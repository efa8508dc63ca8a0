//! What stands in the way of a set that neither its placements nor its works tell.

use super::troubles::one_line;

/// What only the hub knows of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hindrances {
    /// The set is being deleted.
    pub deleting: bool,
    /// How many works the hub's API refuses to have written.
    pub refused: usize,
    /// The first of their clusters, and what the API says.
    pub first_refused: Option<(String, String)>,
    /// Why former templates are not kept.
    pub revisions: Vec<String>,
}

impl Hindrances {
    /// The part of a message for them; `None` if there is nothing to say.
    pub(super) fn text(&self) -> Option<String> {
        let mut all = Vec::new();
        if let Some((cluster, text)) = &self.first_refused {
            all.push(format!("cluster {cluster}: {}", one_line(text)));
        }
        if self.refused > 1 {
            all.push(format!("and {} more", self.refused - 1));
        }
        all.extend(self.revisions.iter().cloned());
        (!all.is_empty()).then(|| all.join(", "))
    }
}
