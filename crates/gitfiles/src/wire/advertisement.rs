//! What a server shows of its references before anything is asked for, gitprotocol-pack(5).

use std::io::{self, Read};

use gix_hash::ObjectId;

use super::packet::{self, Packet};
use crate::error::{GitErrorKind, Result};
use crate::objects::parse_id;

/// What is of interest in it. The rest is read and dropped, however many branches there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Advertisement {
    /// The tip of the branch that was asked for.
    pub(crate) branch: Option<ObjectId>,
    /// The tip of the default branch. Servers show it to readers only.
    pub(crate) head: Option<ObjectId>,
    capabilities: Vec<String>,
}

impl Advertisement {
    /// Reads up to the end of the section; `reference` is the full name of the branch.
    pub(crate) fn read(from: &mut dyn Read, reference: &str) -> Result<Self> {
        let mut read = Self::default();
        let mut is_first = true;
        loop {
            let line = match packet::read(from).map_err(|error| broken(&error))? {
                Packet::Flush => break,
                Packet::Line(line) => line,
            };
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            if let Some(text) = line.strip_prefix(b"ERR ") {
                return Err(GitErrorKind::NotARepository {
                    reason: format!("the server says: {}", String::from_utf8_lossy(text).trim()),
                });
            }
            if line.starts_with(b"version ") || line.starts_with(b"shallow ") {
                continue;
            }
            let mut parts = line.splitn(2, |byte| *byte == 0);
            let reference_line = parts.next().unwrap_or_default();
            if is_first {
                let capabilities = parts.next().unwrap_or_default();
                read.capabilities = String::from_utf8_lossy(capabilities)
                    .split_ascii_whitespace()
                    .map(str::to_owned)
                    .collect();
                read.check_hash()?;
                is_first = false;
            }
            let malformed = || GitErrorKind::Protocol {
                reason: format!(
                    "not a reference: {}",
                    String::from_utf8_lossy(reference_line)
                ),
            };
            let split = reference_line.iter().position(|byte| *byte == b' ');
            let (id, name) = reference_line.split_at(split.ok_or_else(malformed)?);
            let id = parse_id(id).ok_or_else(malformed)?;
            match &name[1..] {
                b"HEAD" => read.head = Some(id),
                name if name == reference.as_bytes() => read.branch = Some(id),
                // With the line of an empty repository, `capabilities^{}`, among them.
                _ => {}
            }
        }
        Ok(read)
    }

    /// Whether the server can do `capability`.
    pub(crate) fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|known| known == capability)
    }

    fn check_hash(&self) -> Result<()> {
        let hash = self
            .capabilities
            .iter()
            .find_map(|known| known.strip_prefix("object-format="));
        match hash {
            None | Some("sha1") => Ok(()),
            Some(other) => Err(GitErrorKind::Unsupported {
                what: format!("a repository with the hash {other}"),
            }),
        }
    }
}

/// What an error while reading means.
pub(crate) fn broken(error: &io::Error) -> GitErrorKind {
    if error.kind() == io::ErrorKind::InvalidData {
        GitErrorKind::Protocol {
            reason: error.to_string(),
        }
    } else {
        GitErrorKind::Broken {
            reason: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";

    fn read(lines: &[&str]) -> Result<Advertisement> {
        let mut bytes = Vec::new();
        for line in lines {
            packet::write(&mut bytes, line);
        }
        packet::flush(&mut bytes);
        Advertisement::read(&mut bytes.as_slice(), "refs/heads/main")
    }

    #[test]
    fn finds_branch_and_head() {
        let found = read(&[
            "version 1",
            &format!("{A} HEAD\0shallow ofs-delta object-format=sha1 symref=HEAD:refs/heads/x\n"),
            &format!("{B} refs/heads/main\n"),
            &format!("{A} refs/heads/main2\n"),
            &format!("{A} refs/tags/v1^{{}}\n"),
            &format!("shallow {A}\n"),
        ])
        .unwrap();
        assert_eq!(found.branch, parse_id(B.as_bytes()));
        assert_eq!(found.head, parse_id(A.as_bytes()));
        assert!(found.can("shallow") && found.can("ofs-delta") && !found.can("shal"));
    }

    #[test]
    fn an_empty_repository_has_neither() {
        let zero = "0".repeat(40);
        let found = read(&[&format!("{zero} capabilities^{{}}\0report-status\n")]).unwrap();
        assert_eq!((found.branch, found.head), (None, None));
        assert!(found.can("report-status"));
        assert_eq!(read(&[]).unwrap(), Advertisement::default());
    }

    #[test]
    fn tells_errors_apart() {
        let refused = read(&["ERR access denied: /x\n"]).unwrap_err();
        assert!(
            matches!(refused, GitErrorKind::NotARepository { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("access denied"));
        let other = read(&[&format!("{} HEAD\0object-format=sha256", "1".repeat(64))]).unwrap_err();
        assert!(matches!(other, GitErrorKind::Unsupported { .. }), "{other}");
        let odd = read(&["hello"]).unwrap_err();
        assert!(matches!(odd, GitErrorKind::Protocol { .. }), "{odd}");
        let odd = read(&["hello world"]).unwrap_err();
        assert!(matches!(odd, GitErrorKind::Protocol { .. }), "{odd}");
        let cut = Advertisement::read(&mut b"00".as_slice(), "refs/heads/main").unwrap_err();
        assert!(matches!(cut, GitErrorKind::Broken { .. }), "{cut}");
    }
}
