//! Policies as text.

use skep_policy::PolicyInfo;

/// Maximum columns of a line.
const COLUMNS_MAX: usize = 80;

/// The list of policies, each with a description.
pub(crate) fn policies(policies: &[PolicyInfo]) -> String {
    let name_columns = policies.iter().map(|info| info.name.len()).max().unwrap_or(0) + 4;
    let entry = |info: &PolicyInfo| {
        let mark = if info.direct.is_some() { " *" } else { "" };
        let name = format!("{:name_columns$}", format!("{}{mark}", info.name));
        let lines = wrap(info.about, COLUMNS_MAX - name_columns);
        name + &lines.join(&format!("\n{:name_columns$}", "")) + "\n"
    };
    let entries: String = policies.iter().map(entry).collect();
    format!(
        "{entries}\n* also with dispatch = \"direct\"\nWithout the setting, a service uses \
         round-robin, and a pool least-outstanding.\n`skep service list` says which one each service uses.\n"
    )
}

/// The details of one policy.
pub(crate) fn policy(info: &PolicyInfo) -> String {
    let direct = if info.direct.is_some() { "direct, " } else { "" };
    let latencies = match info.learns_latencies {
        true => "\nlatency   as proxy and pools see them; elsewhere it compares requests",
        false => "",
    };
    format!(
        "{}: {}\n\n{}\n\ngoes by   {}\ndispatch  {direct}handoff, redirect, proxy; pools{latencies}\n\
         source    {}\n",
        info.name,
        wrap(info.about, COLUMNS_MAX - info.name.len() - 2).join("\n"),
        wrap(info.details, COLUMNS_MAX).join("\n"),
        info.goes_by,
        info.source,
    )
}

/// Wraps a text into lines of at most `columns_max` columns.
pub(super) fn wrap(text: &str, columns_max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.len() + word.len() < columns_max);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_fits(text: &str) {
        assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX), "{text}");
    }

    #[test]
    fn each_policy_is_explained() {
        for info in skep_policy::policies() {
            let text = policy(info);
            assert_fits(&text);
            assert!(text.starts_with(&format!("{}: ", info.name)), "{text}");
            assert!(text.replace('\n', " ").contains(info.details), "{text}");
        }
    }

    #[test]
    fn the_list_names_all_and_marks_those_of_direct_dispatch() {
        let text = policies(skep_policy::policies());
        assert_fits(&text);
        for info in skep_policy::policies() {
            let mark = if info.direct.is_some() { " * " } else { "   " };
            let begin = format!("{}{mark}", info.name);
            assert!(text.lines().any(|line| line.starts_with(&begin)), "{}: {text}", info.name);
        }
    }
}
