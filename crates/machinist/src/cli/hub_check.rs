//! `machinist hub check`: verifies the data of a stopped hub.

use anyhow::Result;
use clap::Args;
use machinist_hub::{DataCheck, check_data};

use super::up::DataDirArgs;
use super::{CommandOutcome, output};

/// Verify the data of a stopped hub
///
/// Reads every page, compares the checksums and decodes every object, without changing anything. Exits
/// with an error that names the file if the data are damaged.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hub check --data-dir /tmp/machinist")]
pub(super) struct HubCheck {
    #[command(flatten)]
    data_dir: DataDirArgs,
}

impl HubCheck {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let directory = self.data_dir.directory()?.store();
        let check = check_data(&directory)?;
        output::print(&format!("{}: {}", directory.display(), describe(&check)))?;
        let sound = check.unreadable.is_empty();
        Ok(if sound { CommandOutcome::Done } else { CommandOutcome::Failed })
    }
}

fn describe(check: &DataCheck) -> String {
    let DataCheck { revision, objects, bytes, events, unreadable } = check;
    let mut text =
        format!("{objects} objects ({bytes} bytes), {events} events, revision {revision}\n");
    for key in unreadable {
        text += &format!("{key}: cannot be decoded: start the hub and delete it\n");
    }
    if unreadable.is_empty() {
        text += "all checksums match, and every object can be read\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_is_wrong() {
        let mut check =
            DataCheck { revision: 7, objects: 2, bytes: 30, events: 6, unreadable: Vec::new() };
        assert_eq!(
            describe(&check),
            "2 objects (30 bytes), 6 events, revision 7\nall checksums match, and every object can be read\n"
        );
        check.unreadable.push("/core/nodes/-/a".into());
        assert!(describe(&check).contains("/core/nodes/-/a: cannot be decoded"));
        assert!(!describe(&check).contains("all checksums"));
    }
}
