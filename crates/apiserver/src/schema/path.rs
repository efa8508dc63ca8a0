//! Where in an object something is.

use std::fmt;

/// Most characters of one name that are shown: names of maps come from clients, and one can be as
/// long as a request.
const SHOWN_CHARACTERS: usize = 256;

/// A path that is written out only if there is an error to report: writing it for each value would
/// take as long as there are values times the length of the names above them.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a str),
    Item(usize),
}

impl Path<'_> {
    /// The object itself.
    pub(crate) const ROOT: Self = Self {
        parent: None,
        step: Step::Root,
    };

    fn child<'b>(&'b self, step: Step<'b>) -> Path<'b> {
        Path {
            parent: Some(self),
            step,
        }
    }

    /// `path.name`.
    pub(crate) fn field<'b>(&'b self, name: &'b str) -> Path<'b> {
        self.child(Step::Field(name))
    }

    /// `path[name]`.
    pub(crate) fn key<'b>(&'b self, name: &'b str) -> Path<'b> {
        self.child(Step::Key(name))
    }

    /// `path[at]`.
    pub(crate) fn item(&self, at: usize) -> Path<'_> {
        self.child(Step::Item(at))
    }

    /// Whether it is the object itself.
    pub(crate) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

fn shown(name: &str) -> &str {
    let end = name.char_indices().nth(SHOWN_CHARACTERS);
    end.map_or(name, |(end, _)| &name[..end])
}

impl fmt::Display for Path<'_> {
    /// As deep as the object is, which has a bound.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        let is_first = self.parent.is_none_or(Self::is_root);
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if is_first => f.write_str(shown(name)),
            Step::Field(name) => write!(f, ".{}", shown(name)),
            Step::Key(name) => write!(f, "[{}]", shown(name)),
            Step::Item(at) => write!(f, "[{at}]"),
        }
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_kubernetes_does() {
        let root = Path::ROOT;
        let spec = root.field("spec");
        let list = spec.field("list");
        let item = list.item(3);
        assert_eq!(item.field("name").to_string(), "spec.list[3].name");
        assert_eq!(spec.key("a.b").to_string(), "spec[a.b]");
        assert_eq!(root.to_string(), "");
        let long = "é".repeat(1000);
        assert_eq!(
            spec.field(&long).to_string(),
            format!("spec.{}", "é".repeat(256))
        );
    }
}
