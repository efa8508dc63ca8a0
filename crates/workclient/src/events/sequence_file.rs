//! The sequence ids that an agent has used, beside its works: after a restart it goes on above them,
//! whatever its clock says.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use muster_cloudevents::Agent;
use muster_cloudevents::work::WorkCodec;
use tracing::warn;

/// Has an agent begin above what its file says, and keep that up to date.
pub(super) fn keep(agent: Agent<WorkCodec>, works: &Path) -> Agent<WorkCodec> {
    let file = works.with_extension("sequence");
    match fs::read_to_string(&file) {
        // What is no id means nothing: sources heal that, too.
        Ok(id) => agent.begin_after(id.trim()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let file = file.display();
            warn!(%file, %error, "failed to read the last sequence id");
        }
    }
    agent.reserving(move |id| {
        if let Err(error) = write(&file, id) {
            let file = file.display();
            warn!(%file, %error, "failed to keep the last sequence id");
        }
    })
}

/// Replaces the file whole.
fn write(file: &PathBuf, id: &str) -> io::Result<()> {
    let new = file.with_extension("sequence.new");
    let mut written = fs::File::create(&new)?;
    written.write_all(id.as_bytes())?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_cloudevents::work::Form;
    use muster_cloudevents::{Dialect, Stamp};

    use super::*;

    fn agent(works: &Path, stamps: fn() -> Stamp) -> Agent<WorkCodec> {
        let agent = Agent::new("a", "edge-a", Dialect::Enhancement, WorkCodec(Form::Bundle));
        keep(agent.unwrap().with_stamps(stamps), works)
    }

    fn at(second: i64) -> Stamp {
        Stamp {
            time: Timestamp::from_second(second).unwrap(),
            ..Stamp::now()
        }
    }

    #[test]
    fn ids_go_on_after_a_restart_with_a_clock_that_was_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let works = dir.path().join("edge-a.redb");
        let number = |id: String| id.parse::<i64>().unwrap();
        let last = number(agent(&works, || at(2_000_000_600)).next_sequence_id());
        let next = number(agent(&works, || at(2_000_000_000)).next_sequence_id());
        assert!(next > last, "{next} {last}");
        fs::write(dir.path().join("edge-a.sequence"), "junk").unwrap();
        assert!(number(agent(&works, || at(2_000_000_000)).next_sequence_id()) > 0);
    }
}
