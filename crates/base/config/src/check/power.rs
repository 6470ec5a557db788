//! Contradictions in the commands that switch machines on and off.

use skep_units::did_you_mean;

use super::Step::{Key, Nth};
use super::{Conflict, Step, ms};
use crate::power::{PLACEHOLDERS, PowerConfig, placeholders_of};
use crate::schema::Config;
use crate::words::ContentPlacement;

/// Commands have absolute paths and known placeholders; a machine that can be switched off can be
/// switched on.
pub(super) fn commands_can_be_run(config: &Config, clashes: &mut Vec<Conflict>) {
    of_table(&[Key("power")], &config.power, clashes);
    for (i, node) in config.nodes.iter().enumerate() {
        of_table(&[Key("node"), Nth(i), Key("power")], &node.power, clashes);
        let arguments = config.power_of(node).commands().into_iter().flat_map(|(_, it)| it);
        let mut ids = arguments.filter(|argument| placeholders_of(argument).1);
        if node.power_id.is_none() && ids.next().is_some() {
            let at = [Key("node"), Nth(i)];
            let expected = "power_id, which a command of `power` names as {id}";
            clashes.push(Conflict::new(&at, expected, format!("none at node {:?}", node.name)));
        }
    }
}

fn of_table(at: &[Step], power: &PowerConfig, clashes: &mut Vec<Conflict>) {
    let place = |name| at.iter().copied().chain([Key(name)]).collect::<Vec<_>>();
    for (name, command) in power.commands() {
        if command.first().is_some_and(|program| !program.starts_with('/')) {
            let expected = "the absolute path of a program, and its arguments";
            let clash = Conflict::new(&place(name), expected, format!("{:?}", command[0]));
            clashes.push(clash.hint("such as \"/usr/bin/ipmitool\"".to_owned()));
        }
        for unknown in command.iter().flat_map(|argument| placeholders_of(argument).0) {
            let known = PLACEHOLDERS.map(|it| format!("{{{it}}}")).join(", ");
            let expected = format!("one of {known}");
            let clash = Conflict::new(&place(name), expected, format!("{{{unknown}}}"));
            let hint = did_you_mean(unknown, PLACEHOLDERS);
            clashes.push(match hint {
                Some(hint) => clash.hint(hint),
                None => clash,
            });
        }
    }
    if power.on.is_empty() && power.has_commands() {
        let expected = "a command `on` beside `off` and `status`";
        clashes.push(Conflict::new(&place("on"), expected, "none".to_owned()));
    }
}

/// Commands end before the start of a node times out.
pub(super) fn commands_end_in_time(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.services.iter().enumerate().filter(|(_, it)| it.elastic.enabled) {
        let powers = config.nodes_of(service).map(|(_, node)| config.power_of(node));
        let slowest_ms = powers.filter(|it| it.has_commands()).map(|it| it.timeout_ms).max();
        let limit_ms = service.elastic.start_timeout_ms;
        if let Some(slowest_ms) = slowest_ms.filter(|slowest_ms| *slowest_ms >= limit_ms) {
            let at = [Key("service"), Nth(i), Key("elastic"), Key("start_timeout_ms")];
            let expected = format!("more than power.timeout_ms ({})", ms(slowest_ms));
            let clash = Conflict::new(&at, expected, ms(limit_ms));
            let why = "the node must be up within this time, which includes the command";
            clashes.push(clash.hint(why.to_owned()));
        }
    }
}

/// Switching a machine off makes its part of a partitioned folder unavailable.
pub(super) fn parts_stay_on(config: &Config, clashes: &mut Vec<Conflict>) {
    let is_part = config.backends().any(|it| it.content == ContentPlacement::Partition);
    let switched = config.nodes.iter().find(|node| !config.power_of(node).off.is_empty());
    if let Some(node) = switched.filter(|_| is_part) {
        let expected = "no `off` for nodes that have a part of a folder";
        let found = format!("content \"partition\", and a command that switches {} off", node.name);
        let clash = Conflict::new(&[Key("power"), Key("off")], expected, found);
        clashes.push(clash.hint("its files are on no other node".to_owned()));
    }
}
