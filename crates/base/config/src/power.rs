//! Settings of the commands that switch machines of nodes on and off.

use crate::kind::{Form, HOUR_MS, Kind, MINUTE_MS, ms};
use crate::table::table;

/// The placeholders allowed in arguments of commands; they are replaced by values of the node being
/// switched.
pub(crate) const PLACEHOLDERS: [&str; 4] = ["name", "address", "port", "id"];

table! {
    /// Commands with which elasticity switches the machine of a node on and off: programs with their arguments,
    /// run without a shell. In arguments, `{name}` is the name of the node, `{address}` its IP address,
    /// `{port}` its port, and `{id}` its `power_id`. Dispatchers run them in a separate process. If a node has
    /// commands of its own, none of those for all nodes applies to it. Without commands, elasticity has nodes
    /// return their memory, and machines stay on.
    PowerConfig at "power" {
        /// Switches a machine on: `["/usr/bin/ipmitool", "-H", "{id}", "chassis", "power", "on"]`. The node
        /// must pass its checks within `elastic.start_timeout_ms`, which includes the run time of the command.
        on: Vec<String> = Vec::new() => Kind::Arguments, live;
        /// Switches a machine off. The node has no requests then, unless `elastic.drain_timeout_ms` has passed;
        /// segments of which it had the sole replica were handed over to other nodes that had room.
        off: Vec<String> = Vec::new() => Kind::Arguments, live;
        /// Reports whether a machine is on: it exits with 0, and one word of its output is one of `on_words` or
        /// `off_words`. If unset, a machine counts as off when its node neither answers checks nor has a link
        /// to the dispatcher.
        status: Vec<String> = Vec::new() => Kind::Arguments, live;
        /// Words that mean that a machine is on, in upper or lower case.
        on_words: Vec<String> = words(&["on", "running"]) => Kind::Texts(Form::Name), live;
        /// Words that mean that a machine is off. If there are words of both kinds, the status is unclear.
        off_words: Vec<String> = words(&["off", "stopped", "terminated", "deallocated"])
            => Kind::Texts(Form::Name), live;
        /// Environment of the commands, such as `{ AWS_PROFILE = "skep" }`, in addition to `PATH`, `LANG=C` and
        /// `HOME`, which is `state_dir`. They inherit nothing from this process.
        environment: Vec<(String, String)> = Vec::new() => Kind::Params, live;
        /// User that runs the commands if the dispatcher was started as root; if unset, the serving user.
        user: Option<String> = None => Kind::Text(Form::Name), live;
        /// Time for a command. After it, the command has failed, and is killed with everything that it started
        /// in its process group.
        timeout_ms: u64 = 30_000 => ms(100..=HOUR_MS), live;
        /// Time after `off` in which the machine must be off; otherwise the command has failed.
        off_timeout_ms: u64 = 2 * MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Time from the end of one `status` to the next, while a machine is being switched on or off.
        status_interval_ms: u64 = 5_000 => ms(100..=HOUR_MS), live;
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl PowerConfig {
    /// Whether any command is set.
    pub fn has_commands(&self) -> bool {
        self.commands().iter().any(|(_, command)| !command.is_empty())
    }

    /// The commands with the names of their settings.
    pub(crate) fn commands(&self) -> [(&'static str, &[String]); 3] {
        [("on", &self.on), ("off", &self.off), ("status", &self.status)]
    }
}

/// Returns `argument` with its placeholders replaced.
pub(crate) fn with_values(argument: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::new();
    let mut rest = argument;
    while let Some((before, name, behind)) = placeholder(rest) {
        text.push_str(before);
        match value(name) {
            Some(value) => text.push_str(&value),
            None => text.push_str(&format!("{{{name}}}")),
        }
        rest = behind;
    }
    text + rest
}

/// Returns the unknown placeholders of `argument`, and whether it contains `{id}`.
pub(crate) fn placeholders_of(argument: &str) -> (Vec<&str>, bool) {
    let (mut unknown, mut has_id, mut rest) = (Vec::new(), false, argument);
    while let Some((_, name, behind)) = placeholder(rest) {
        has_id |= name == "id";
        if !PLACEHOLDERS.contains(&name) {
            unknown.push(name);
        }
        rest = behind;
    }
    (unknown, has_id)
}

/// Returns the text before the first placeholder, its name, and the text after it. Braces around
/// anything other than a word, as in JSON, are not placeholders.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let is_word = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        let end = text[open..].find('}').map(|at| open + at)?;
        let name = &text[open + 1..end];
        if is_word(name) {
            return Some((&text[..open], name, &text[end + 1..]));
        }
        from = open + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_stand_for_what_is_known_of_a_node() {
        let value = |name: &str| match name {
            "name" => Some("comb-1".to_owned()),
            "address" => Some("10.0.0.11".to_owned()),
            "port" => Some("8080".to_owned()),
            "id" => Some("i-0a".to_owned()),
            _ => None,
        };
        for (argument, expected) in [
            ("plain", "plain"),
            ("{name}", "comb-1"),
            ("--ip={address}:{port}", "--ip=10.0.0.11:8080"),
            ("{id}{id}", "i-0ai-0a"),
            ("{\"a\": {\"b\": \"{id}\"}}", "{\"a\": {\"b\": \"i-0a\"}}"),
            ("{", "{"),
            ("{}", "{}"),
            ("{{name}", "{comb-1"),
            ("{other}", "{other}"),
        ] {
            assert_eq!(with_values(argument, value), expected);
        }
        assert_eq!(placeholders_of("{nmae} {id} {X}"), (vec!["nmae"], true));
    }
}
