//! Policies as text.

use skep_console::PolicyInfo;

/// Columns of a line.
const COLUMNS_MAX: usize = 80;

/// What each chooses.
pub(crate) fn policies(policies: &[PolicyInfo]) -> String {
    let name_columns = policies.iter().map(|info| info.name.len()).max().unwrap_or(0) + 4;
    let entry = |info: &PolicyInfo| {
        let mark = if info.direct.is_some() { " *" } else { "" };
        let name = format!("{:name_columns$}", format!("{}{mark}", info.name));
        let lines = wrap(info.about, COLUMNS_MAX - name_columns);
        name + &lines.join(&format!("\n{:name_columns$}", "")) + "\n"
    };
    let entries: String = policies.iter().map(entry).collect();
    format!("{entries}\n* also with dispatch = \"direct\"\n")
}

/// All about one.
pub(crate) fn policy(info: &PolicyInfo) -> String {
    let goes_by = match (info.content_aware, info.measures_replies) {
        (true, _) => "what is asked for, and loads",
        (false, true) => "how fast nodes answer, where that is seen (proxy, pools), and loads",
        (false, false) => "addresses or loads",
    };
    let direct = if info.direct.is_some() { "direct, " } else { "" };
    let weights = if info.weighted { "used" } else { "not used" };
    format!(
        "{}: {}\n\n{}\n\ngoes by   {goes_by}\ndispatch  {direct}handoff, redirect, proxy; pools\n\
         weights   {weights}\nsource    {}\n",
        info.name,
        wrap(info.about, COLUMNS_MAX - info.name.len() - 2).join("\n"),
        wrap(info.details, COLUMNS_MAX).join("\n"),
        info.source,
    )
}

/// Lines of at most so many columns.
fn wrap(text: &str, columns_max: usize) -> Vec<String> {
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
        for info in skep_console::policies() {
            let text = policy(info);
            assert_fits(&text);
            assert!(text.starts_with(&format!("{}: ", info.name)), "{text}");
            assert!(text.replace('\n', " ").contains(info.details), "{text}");
        }
    }

    #[test]
    fn the_list_names_all_and_marks_those_of_direct_dispatch() {
        let text = policies(skep_console::policies());
        assert_fits(&text);
        for info in skep_console::policies() {
            let mark = if info.direct.is_some() { " * " } else { "   " };
            let begin = format!("{}{mark}", info.name);
            assert!(text.lines().any(|line| line.starts_with(&begin)), "{}: {text}", info.name);
        }
    }
}
