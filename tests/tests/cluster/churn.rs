//! Nodes are killed, drained and added and objects change, while every byte of every reply is compared:
//! `skep-lab verify`, with a small number of replies.

use std::process::Command;
use std::time::Duration;

use skep_tests::Skep;
use skep_tests::direct::{figure, root_or_skip};

const REPLIES: &str = "40000";

/// Time between two events.
const STEP_MS: &str = "600";

/// Far above the time that the replies take.
const DEADLINE: Duration = Duration::from_secs(600);

#[test]
fn no_reply_is_wrong_mixed_or_old_while_nodes_come_and_go_and_objects_change() {
    if !root_or_skip() {
        return;
    }
    // Built with the workspace, like `skep`.
    let lab = Skep::binary().with_file_name("skep-lab");
    assert!(lab.exists(), "no {}: run `cargo build -p skep-lab` first", lab.display());
    let mut command = Command::new(lab);
    command.args(["verify", "--replies", REPLIES, "--step-ms", STEP_MS]);
    command.arg("--skep").arg(Skep::binary());
    let finished = Skep::start_command(&mut command).finish_within(DEADLINE);
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
    let value = |what: &str| {
        let line = finished.stdout.lines().find_map(|line| line.strip_prefix(what));
        line.unwrap_or_else(|| panic!("no {what} in {}", finished.stdout)).to_owned()
    };
    figure(&format!(
        "churn: {} replies compared, wrong {}, failed {}, old {}",
        value("| replies compared, right |").trim_end_matches('|').trim(),
        value("| **wrong** |").trim_end_matches('|').trim(),
        value("| failed |").trim_end_matches('|').trim(),
        value("| old |").trim_end_matches('|').trim(),
    ));
}
