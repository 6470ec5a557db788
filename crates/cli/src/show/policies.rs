//! Policies as text.

use skep_policy::PolicyInfo;

use super::table::{Align, Table};

/// Columns of a line of prose.
const COLUMNS_MAX: usize = 100;

/// A line for each.
pub(crate) fn policies(policies: &[PolicyInfo]) -> String {
    let mut table = Table::new(&[
        ("POLICY", Align::Left),
        ("DIRECT", Align::Left),
        ("WEIGHTS", Align::Left),
        ("CHOOSES", Align::Left),
    ]);
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for info in policies {
        let (direct, weighted) = (info.direct.is_some(), info.weighted);
        table.row([info.name.to_owned(), yes(direct), yes(weighted), info.about.to_owned()]);
    }
    table.text(usize::MAX, |_| "")
}

/// All about one.
pub(crate) fn policy(info: &PolicyInfo) -> String {
    let goes_by = match info.content_aware {
        true => "what is asked for: a dispatcher, or the node that accepts, reads the request",
        false => "addresses and loads",
    };
    let modes = match (info.direct.is_some(), info.measures_replies) {
        (true, _) => "direct, handoff, redirect, proxy; pools",
        (false, false) => "handoff, redirect, proxy; pools",
        (false, true) => "proxy and pools; without latencies, fewest requests: handoff, redirect",
    };
    let weights = if info.weighted { "used" } else { "not used" };
    format!(
        "{}: {}\n\n{}\n\ngoes by   {goes_by}\ndispatch  {modes}\nweights   {weights}\nsource    {}\n",
        info.name,
        info.about,
        wrap(info.details),
        info.source,
    )
}

fn wrap(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.len() + word.len() < COLUMNS_MAX);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_explained_in_lines_that_fit() {
        for info in skep_policy::policies() {
            let text = policy(info);
            assert!(text.starts_with(&format!("{}: ", info.name)), "{text}");
            assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX), "{text}");
            assert!(text.replace('\n', " ").contains(info.details), "{text}");
        }
    }

    #[test]
    fn the_list_names_all() {
        let text = policies(skep_policy::policies());
        assert_eq!(text.lines().count(), 1 + skep_policy::policies().len());
        let lard = text.lines().find(|line| line.starts_with("lard ")).unwrap_or_default();
        assert!(lard.contains("no"), "{text}");
    }
}
