//! Paths of files in a repository that every system which may clone it can hold.

use std::fmt;

/// What one segment may have in bytes on the common file systems.
const SEGMENT_BYTES: usize = 255;
/// What a path may have in bytes on Linux, with room for where the clone lies.
const PATH_BYTES: usize = 3840;

/// A path of a file or folder, relative, with `/` between its segments.
///
/// What cannot be held by Git, or by Windows or macOS when the repository is cloned there, is
/// refused and never rewritten: two names must not end in one file. Refused are
///
/// - absolute paths, empty segments, `.` and `..`;
/// - `.git` in every form that a file system takes for it (`.GIT`, `git~1`);
/// - backslashes, control characters and the other characters that Windows reserves
///   (`< > : " | ? *`), so that a Kubernetes name such as `system:node` needs an encoding, see
///   [`crate::layout`];
/// - segments that end in a dot or a space, which Windows cuts off;
/// - names of devices on Windows (`con`, `aux.yaml`);
/// - characters that macOS does not see in names, where they could hide a `.git`;
/// - segments above 255 bytes, paths above 3,840.
///
/// Names that differ in case only are let through. Git and Linux hold them both; where a clone
/// cannot, `git clone` warns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(String);

/// A path is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path {path:?} is refused: {reason}")]
pub struct PathError {
    /// The path.
    pub path: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl FilePath {
    /// Takes `path` if it can be held everywhere.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub fn new(path: impl Into<String>) -> Result<Self, PathError> {
        let path = path.into();
        let refused = if path.is_empty() {
            Some("it is empty")
        } else if path.len() > PATH_BYTES {
            Some("it is longer than 3,840 bytes")
        } else if path.starts_with('/') {
            Some("it is absolute")
        } else {
            path.split('/').find_map(refused_segment)
        };
        match refused {
            Some(reason) => Err(PathError { path, reason }),
            None => Ok(Self(path)),
        }
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its names, the folders first.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// This path below `base`, or as it is where there is no base.
    ///
    /// # Errors
    ///
    /// Both together are too long.
    pub fn below(&self, base: Option<&Self>) -> Result<Self, PathError> {
        match base {
            Some(base) => Self::new(format!("{base}/{self}")),
            None => Ok(self.clone()),
        }
    }

    /// Whether this folder is `other`, or has it below it.
    pub fn contains(&self, other: &Self) -> bool {
        other
            .0
            .strip_prefix(&self.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether Windows cannot have `character` in a name.
pub(crate) fn is_reserved(character: char) -> bool {
    character.is_control() || matches!(character, '<' | '>' | ':' | '"' | '|' | '?' | '*' | '\\')
}

/// Whether Windows takes a file of this name for a device, whatever comes after the first dot.
pub(crate) fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end_matches(' ');
    let stem = stem.to_ascii_lowercase();
    let numbered = |prefix| {
        stem.strip_prefix(prefix).is_some_and(|rest: &str| {
            matches!(
                rest,
                "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³"
            )
        })
    };
    matches!(
        stem.as_str(),
        "con" | "prn" | "aux" | "nul" | "conin$" | "conout$"
    ) || numbered("com")
        || numbered("lpt")
}

/// Whether macOS leaves `character` out when it compares names.
pub(crate) const fn is_ignored_by_hfs(character: char) -> bool {
    matches!(
        character,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
    )
}

fn refused_segment(segment: &str) -> Option<&'static str> {
    if segment.is_empty() {
        Some("a segment is empty")
    } else if segment == "." || segment == ".." {
        Some("a segment is . or ..")
    } else if segment.len() > SEGMENT_BYTES {
        Some("a segment is longer than 255 bytes")
    } else if segment.contains('\\') {
        Some("it has a backslash")
    } else if segment.contains(is_reserved) {
        Some("it has a character that Windows cannot hold")
    } else if segment.contains(is_ignored_by_hfs) {
        Some("it has a character that macOS ignores")
    } else if segment.eq_ignore_ascii_case(".git") || segment.eq_ignore_ascii_case("git~1") {
        Some("a segment is Git's own folder")
    } else if segment.ends_with(['.', ' ']) {
        Some("a segment ends in a dot or a space")
    } else if is_device(segment) {
        Some("a segment is the name of a device on Windows")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_every_system_can_hold() {
        for path in [
            "a",
            "a/b.yaml",
            ".github/x",
            "v1/pods/default/nginx.yaml",
            "a b/c",
            "ü/ß.yaml",
            "..a",
            "a..b",
            ".gitignore",
            "console/com10.yaml",
            "git~2",
            "100%/x",
        ] {
            assert_eq!(FilePath::new(path).unwrap().as_str(), path);
        }
    }

    #[test]
    fn refuses_what_leaves_the_folder_or_cannot_be_held() {
        for (path, part) in [
            ("", "empty"),
            ("/a", "absolute"),
            ("a//b", "segment is empty"),
            ("a/", "segment is empty"),
            ("..", ". or .."),
            ("a/../b", ". or .."),
            ("./a", ". or .."),
            ("a\\b", "backslash"),
            ("a/.git/config", "Git's own"),
            (".GIT", "Git's own"),
            ("a/Git~1/b", "Git's own"),
            ("system:node.yaml", "Windows cannot"),
            ("a\nb", "Windows cannot"),
            ("a\0b", "Windows cannot"),
            ("a?/b", "Windows cannot"),
            (".git./b", "dot or a space"),
            ("a /b", "dot or a space"),
            ("con", "device"),
            ("AUX.yaml", "device"),
            ("a/lpt1.tar.gz", "device"),
            ("nul .txt", "device"),
            (".g\u{200c}it", "macOS"),
        ] {
            let error = FilePath::new(path).expect_err(path);
            assert_eq!(error.path, path);
            assert!(error.reason.contains(part), "{path:?}: {error}");
        }
    }

    #[test]
    fn bounds_lengths() {
        assert!(FilePath::new("a".repeat(255)).is_ok());
        assert!(FilePath::new("a".repeat(256)).is_err());
        let long = vec!["a".repeat(239); 16].join("/");
        assert_eq!(long.len(), 3839);
        let long = FilePath::new(long).unwrap();
        assert!(long.below(None).is_ok());
        assert!(long.below(Some(&FilePath::new("b").unwrap())).is_err());
    }

    #[test]
    fn a_folder_contains_itself_and_what_is_below_it() {
        let path = |text: &str| FilePath::new(text).unwrap();
        assert!(path("a").contains(&path("a")));
        assert!(path("a").contains(&path("a/b")));
        assert!(!path("a").contains(&path("ab")));
        assert!(!path("a/b").contains(&path("a")));
    }
}
