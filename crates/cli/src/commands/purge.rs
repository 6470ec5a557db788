//! `skep purge`.

use anyhow::bail;
use skep_console::{NewPurge, PurgeOutcome, Purged, PurgedNode};

use super::{print, print_json};
use crate::arguments::PurgeArgs;

pub(crate) fn purge(args: PurgeArgs) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let soft = args.soft.then_some(true);
    let new = NewPurge { what: args.what, soft, timeout_ms: Some(args.timeout) };
    let answer = client.post_json("/api/v1/purge", &new)?;
    let purged: Purged = client.decode(&answer)?;
    match args.json {
        true => print_json(&answer)?,
        false => print(&tell(&purged, if args.soft { "made stale" } else { "purged" }))?,
    }
    match missing(&purged, args.timeout).as_slice() {
        [] => Ok(()),
        missing => bail!("not purged everywhere: {}", missing.join("; ")),
    }
}

/// A line for each node: that it has `done` it, or why not.
fn tell(purged: &Purged, done: &str) -> String {
    let width = purged.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let line = |node: &PurgedNode| {
        let outcome = match node.outcome {
            PurgeOutcome::Acknowledged => match node.ms.unwrap_or(0) {
                0 => format!("{done} in < 1 ms"),
                ms => format!("{done} in {ms} ms"),
            },
            PurgeOutcome::Late => "no acknowledgment".to_owned(),
            PurgeOutcome::Lost => "link lost".to_owned(),
            PurgeOutcome::Unlinked => "not linked, but serves clients".to_owned(),
            PurgeOutcome::Away => "away; applies it before it takes part again".to_owned(),
        };
        format!("{:width$}  {outcome}\n", node.name)
    };
    purged.nodes.iter().map(line).collect()
}

/// Nodes that did not acknowledge the purge, and may still reply with the purged content.
fn missing(purged: &Purged, timeout_ms: u64) -> Vec<String> {
    let why = |node: &PurgedNode| match node.outcome {
        PurgeOutcome::Late => {
            Some(format!("{} has not acknowledged it within {timeout_ms} ms", node.name))
        }
        PurgeOutcome::Lost => Some(format!(
            "{}'s link was lost meanwhile (it applies the purge when it comes back)",
            node.name
        )),
        PurgeOutcome::Unlinked => Some(format!(
            "{} serves clients, and has not linked with this dispatcher within {timeout_ms} ms (it \
             may reply with what was purged until it does: see its log)",
            node.name
        )),
        PurgeOutcome::Acknowledged | PurgeOutcome::Away => None,
    };
    purged.nodes.iter().filter_map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_purged_is_named() {
        let node = |name: &str, outcome, ms| PurgedNode { name: name.to_owned(), outcome, ms };
        let nodes = vec![
            node("a", PurgeOutcome::Acknowledged, Some(3)),
            node("bc", PurgeOutcome::Late, None),
            node("d", PurgeOutcome::Lost, None),
            node("e", PurgeOutcome::Away, None),
            node("f", PurgeOutcome::Unlinked, None),
        ];
        let purged = Purged { stamp: 1, complete: false, nodes };
        let text = "a   purged in 3 ms\nbc  no acknowledgment\nd   link lost\n\
                    e   away; applies it before it takes part again\n\
                    f   not linked, but serves clients\n";
        assert_eq!(tell(&purged, "purged"), text);
        let missing = missing(&purged, 2_000);
        assert_eq!(missing[0], "bc has not acknowledged it within 2000 ms");
        assert_eq!((missing.len(), missing[1].contains("d's link")), (3, true));
        assert!(missing[2].starts_with("f serves clients, and has not linked"), "{missing:?}");
    }
}
