//! Repositories of a server: version 0 of Git's protocol, which all servers speak, and which is
//! all there is for a push.

mod advertisement;
mod daemon;
mod http;
mod net;
mod packet;

use std::io::{self, BufReader, Read};

use gix_hash::ObjectId;

use self::advertisement::{Advertisement, broken};
use self::packet::{Packet, SideBand};
use crate::config::Config;
use crate::error::{GitErrorKind, Result};
use crate::location::Location;
use crate::objects::{HASH, NewObjects};
use crate::remote::{Look, Pushed, Start};
use crate::store::Store;

const AGENT: &str = concat!("agent=muster/", env!("CARGO_PKG_VERSION"));

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    UploadPack,
    ReceivePack,
}

impl Service {
    const fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }
}

/// One look at a repository, and at most one request after it.
trait Conversation {
    /// Where to read what references the server shows.
    fn advertisement(&mut self) -> Result<&mut dyn Read>;
    /// Sends all there is to say, and gives back where to read the answer.
    fn exchange(self: Box<Self>, request: Vec<u8>) -> Result<Box<dyn Read>>;
    /// Ends it with nothing to ask for.
    fn leave(self: Box<Self>);
}

/// A repository of a server.
pub(crate) struct Wire<'c> {
    pub(crate) config: &'c Config,
    pub(crate) location: &'c Location,
    pub(crate) reference: &'c str,
    pub(crate) store: &'c Store,
}

impl Wire<'_> {
    /// Looks at the remote and gets what is missing of the commit to start from.
    pub(crate) fn look(&self) -> Result<Look> {
        match self.try_look() {
            // What was kept is of no use; without it, all of the tree comes anew.
            Err(GitErrorKind::Damaged { .. }) if self.store.tip()?.is_some() => {
                self.store.clear()?;
                self.try_look()
            }
            other => other,
        }
    }

    fn try_look(&self) -> Result<Look> {
        let (shown, conversation) = self.open(Service::UploadPack)?;
        let start = match (shown.branch, shown.head) {
            (Some(tip), _) => Start::Branch(tip),
            (None, Some(tip)) => Start::Default(tip),
            (None, None) => Start::Empty,
        };
        if self.store.is_full(&self.config.limits)? {
            self.store.clear()?;
        }
        let kept = self.store.tip()?;
        match start.commit() {
            Some(tip) if kept != Some(tip) => {
                self.fetch(&shown, conversation, tip, kept)?;
                self.store.set_tip(Some(tip))?;
            }
            _ => conversation.leave(),
        }
        let objects = self.store.objects(&self.config.limits)?;
        if let Some(tip) = start.commit() {
            objects.tree_of(tip)?;
        }
        Ok(Look { start, objects })
    }

    fn open(&self, service: Service) -> Result<(Advertisement, Box<dyn Conversation>)> {
        let limits = &self.config.limits;
        let mut conversation = match self.location {
            Location::Http(url) => http::Client {
                credentials: &self.config.credentials,
                authorities: self.config.authorities.as_deref(),
                limits,
            }
            .open(url, service)?,
            Location::Daemon { host, port, path } => {
                daemon::open(host, *port, path, service, limits)?
            }
            Location::Path(path) => {
                return Err(GitErrorKind::Protocol {
                    reason: format!("{} is on this machine", path.display()),
                });
            }
        };
        // A bound for a server that shows references without end; a line is about 100 bytes.
        let mut from = conversation.advertisement()?.take(limits.fetch_bytes);
        let shown = Advertisement::read(&mut from, self.reference)?;
        Ok((shown, conversation))
    }

    /// Gets commit `tip` without its history, less what commit `kept` has.
    fn fetch(
        &self,
        shown: &Advertisement,
        conversation: Box<dyn Conversation>,
        tip: ObjectId,
        kept: Option<ObjectId>,
    ) -> Result<()> {
        let shallow = shown.can("shallow");
        let side_band = shown.can("side-band-64k");
        let mut answer = conversation.exchange(fetch_request(shown, tip, kept))?;
        if shallow {
            // Which commits have no history here is of no interest: none is ever looked at.
            while let Packet::Line(line) =
                packet::read(&mut answer).map_err(|error| broken(&error))?
            {
                refuse_error(&line)?;
            }
        }
        match packet::read(&mut answer).map_err(|error| broken(&error))? {
            Packet::Line(line) if line.starts_with(b"ACK ") || line.starts_with(b"NAK") => {}
            Packet::Line(line) => {
                refuse_error(&line)?;
                return Err(GitErrorKind::Protocol {
                    reason: "neither ACK nor NAK came".to_owned(),
                });
            }
            Packet::Flush => {
                return Err(GitErrorKind::Protocol {
                    reason: "no pack came".to_owned(),
                });
            }
        }
        let pack: Box<dyn Read> = if side_band {
            Box::new(SideBand::new(answer))
        } else {
            answer
        };
        self.take_in(pack)
    }

    fn take_in(&self, pack: Box<dyn Read>) -> Result<()> {
        let limits = &self.config.limits;
        let mut pack = BufReader::new(Watched {
            from: pack,
            left: limits.fetch_bytes,
            failed: None,
        });
        let taken = self.store.add_pack(&mut pack, limits)?;
        match (taken, pack.into_inner().failed) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(Failure::TooLarge)) => Err(GitErrorKind::TooLarge {
                what: "what the server sends",
                limit: limits.fetch_bytes,
            }),
            (Err(_), Some(Failure::Read(error))) => Err(broken(&error)),
            (Err(reason), None) => Err(GitErrorKind::Damaged {
                reason: format!("the pack that the server sends: {reason}"),
            }),
        }
    }

    /// Moves the branch from `old` to `new`, if it is still there.
    pub(crate) fn push(
        &self,
        old: Option<ObjectId>,
        new: ObjectId,
        objects: &NewObjects,
    ) -> Result<Pushed> {
        let (shown, conversation) = self.open(Service::ReceivePack)?;
        if shown.branch != old {
            conversation.leave();
            return Ok(moved(shown.branch));
        }
        if !shown.can("report-status") {
            return Err(GitErrorKind::Unsupported {
                what: "a server that does not tell what became of a push".to_owned(),
            });
        }
        let pack = objects.pack()?;
        let mut request = Vec::new();
        let zero = ObjectId::null(HASH);
        let from = old.unwrap_or(zero);
        let command = format!("{from} {new} {}\0 report-status {AGENT}", self.reference);
        packet::write(&mut request, &command);
        packet::flush(&mut request);
        request.extend_from_slice(&pack);
        let mut answer = conversation.exchange(request)?;
        match read_report(&mut answer, self.reference)? {
            None => {
                self.keep(new, &pack);
                Ok(Pushed::Done)
            }
            Some(reason) => {
                // Servers word it in many ways that the branch has moved; a look tells.
                let (shown, conversation) = self.open(Service::ReceivePack)?;
                conversation.leave();
                if shown.branch == old && !is_about_a_lock(&reason) {
                    return Err(GitErrorKind::Refused { reason });
                }
                Ok(if shown.branch == old {
                    Pushed::Moved
                } else {
                    moved(shown.branch)
                })
            }
        }
    }

    /// Keeps what was pushed, so that the next look need not fetch it. If that fails, it will.
    fn keep(&self, tip: ObjectId, mut pack: &[u8]) {
        let kept = self.store.add_pack(&mut pack, &self.config.limits);
        if !matches!(kept, Ok(Ok(()))) || self.store.set_tip(Some(tip)).is_err() {
            // The tip that is noted is complete still, or nothing is noted any more.
            let _ = self.store.set_tip(None);
        }
    }
}

/// Asks for commit `tip` without its history, less what commit `kept` has.
fn fetch_request(shown: &Advertisement, tip: ObjectId, kept: Option<ObjectId>) -> Vec<u8> {
    let mut request = Vec::new();
    // Without thin packs a server sends all of a shallow commit, whatever we have.
    let wished = [
        "side-band-64k",
        "thin-pack",
        "ofs-delta",
        "no-progress",
        "shallow",
    ];
    let mut want = format!("want {tip}");
    for capability in wished.into_iter().filter(|known| shown.can(known)) {
        want = format!("{want} {capability}");
    }
    packet::write(&mut request, &format!("{want} {AGENT}\n"));
    if shown.can("shallow") {
        // Else the server may leave out what only the history of the commit has.
        if let Some(kept) = kept {
            packet::write(&mut request, &format!("shallow {kept}\n"));
        }
        packet::write(&mut request, "deepen 1\n");
    }
    packet::flush(&mut request);
    if let Some(kept) = kept {
        packet::write(&mut request, &format!("have {kept}\n"));
    }
    packet::write(&mut request, "done\n");
    request
}

const fn moved(branch: Option<ObjectId>) -> Pushed {
    match branch {
        Some(_) => Pushed::Moved,
        None => Pushed::Vanished,
    }
}

/// Another push held the reference just then, and may not have moved it by now.
fn is_about_a_lock(reason: &str) -> bool {
    reason.contains("failed to update ref") || reason.contains("lock")
}

fn refuse_error(line: &[u8]) -> Result<()> {
    match line.strip_prefix(b"ERR ") {
        Some(text) => Err(GitErrorKind::Protocol {
            reason: format!("the server says: {}", String::from_utf8_lossy(text).trim()),
        }),
        None => Ok(()),
    }
}

/// Reads what became of a push: nothing if the branch has moved, else the server's reason.
fn read_report(from: &mut dyn Read, reference: &str) -> Result<Option<String>> {
    let mut told = None;
    loop {
        let line = match packet::read(from).map_err(|error| broken(&error))? {
            Packet::Flush => break,
            Packet::Line(line) => line,
        };
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if let Some(result) = line.strip_prefix("unpack ") {
            if result != "ok" {
                return Ok(Some(format!("unpack: {result}")));
            }
        } else if line.strip_prefix("ok ") == Some(reference) {
            told = Some(None);
        } else if let Some(rest) = line.strip_prefix("ng ") {
            let reason = rest.strip_prefix(reference).unwrap_or(rest).trim();
            told = Some(Some(reason.to_owned()));
        } else if let Some(text) = line.strip_prefix("ERR ") {
            told = Some(Some(text.to_owned()));
        }
    }
    told.ok_or_else(|| GitErrorKind::Protocol {
        reason: "the server does not tell what became of the push".to_owned(),
    })
}

/// A reader with a limit, that remembers why it failed.
struct Watched {
    from: Box<dyn Read>,
    left: u64,
    failed: Option<Failure>,
}

enum Failure {
    TooLarge,
    Read(io::Error),
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(count) if count as u64 > self.left => {
                self.failed = Some(Failure::TooLarge);
                Err(io::Error::other("too large"))
            }
            Ok(count) => {
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let copy = io::Error::new(error.kind(), error.to_string());
                self.failed = Some(Failure::Read(error));
                Err(copy)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::parse_id;

    fn report(lines: &[&str]) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        for line in lines {
            packet::write(&mut bytes, line);
        }
        packet::flush(&mut bytes);
        read_report(&mut bytes.as_slice(), "refs/heads/main")
    }

    #[test]
    fn reads_reports() {
        assert_eq!(
            report(&["unpack ok\n", "ok refs/heads/main\n"]).unwrap(),
            None
        );
        assert_eq!(
            report(&["unpack ok\n", "ng refs/heads/main hook declined\n"])
                .unwrap()
                .as_deref(),
            Some("hook declined")
        );
        assert_eq!(
            report(&["unpack disk full\n", "ng refs/heads/main x\n"])
                .unwrap()
                .as_deref(),
            Some("unpack: disk full")
        );
        assert_eq!(report(&["ERR no\n"]).unwrap().as_deref(), Some("no"));
        for silent in [
            &[][..],
            &["unpack ok\n"],
            &["unpack ok\n", "ok refs/heads/other\n"],
        ] {
            let error = report(silent).unwrap_err();
            assert!(matches!(error, GitErrorKind::Protocol { .. }), "{error}");
        }
        let cut = read_report(&mut b"".as_slice(), "refs/heads/main").unwrap_err();
        assert!(matches!(cut, GitErrorKind::Broken { .. }), "{cut}");
    }

    #[test]
    fn a_fetch_asks_for_one_commit_and_tells_what_is_here() {
        let [tip, kept] = ["1", "2"].map(|digit| parse_id(digit.repeat(40).as_bytes()).unwrap());
        let asked = |capabilities: &str, kept| {
            let mut bytes = Vec::new();
            packet::write(&mut bytes, &format!("{tip} HEAD\0{capabilities}"));
            packet::flush(&mut bytes);
            let shown = Advertisement::read(&mut bytes.as_slice(), "refs/heads/main").unwrap();
            let request = fetch_request(&shown, tip, kept);
            let mut request = request.as_slice();
            let mut lines = Vec::new();
            while !request.is_empty() {
                lines.push(match packet::read(&mut request).unwrap() {
                    Packet::Flush => "flush".to_owned(),
                    Packet::Line(line) => String::from_utf8(line).unwrap().trim().to_owned(),
                });
            }
            lines
        };
        let want = |more: &str| format!("want {tip}{more} {AGENT}");
        assert_eq!(
            asked("multi_ack thin-pack shallow filter", Some(kept)),
            [
                want(" thin-pack shallow"),
                format!("shallow {kept}"),
                "deepen 1".to_owned(),
                "flush".to_owned(),
                format!("have {kept}"),
                "done".to_owned(),
            ]
        );
        assert_eq!(
            asked("shallow", None),
            [&want(" shallow"), "deepen 1", "flush", "done"]
        );
        assert_eq!(
            asked("side-band-64k", Some(kept)),
            [
                &want(" side-band-64k"),
                "flush",
                &format!("have {kept}"),
                "done"
            ]
        );
    }
}
