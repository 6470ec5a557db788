//! A/B tests of policies as text.

use std::fmt::Write;

use skep_console::{ArmTimes, ComparedArm, PolicyComparison, TimeDifference};

use super::table::{Align, TextTable};
use super::{COLUMNS, bytes, count, duration, latency, permille, plural};

/// The test of a service.
pub(crate) fn comparison(shown: &PolicyComparison) -> String {
    let PolicyComparison { service, counted_ms, arms, .. } = shown;
    let clients: u64 = arms.iter().map(|arm| arm.clients).sum();
    let clients = match shown.by_hash {
        true => "clients by the hash of their addresses".to_owned(),
        false => plural(clients, "client"),
    };
    let (count, time) = (plural(arms.len() as u64, "arm"), duration(*counted_ms));
    let mut text = format!("{service}: {count} compared for {time}, {clients}\n\n");
    text += &counts(arms, shown.by_hash);
    if arms.iter().any(|arm| arm.total.is_some()) {
        let _ = write!(text, "\n{}\n{}", times(arms), differences(arms));
    } else if arms.iter().any(|arm| arm.redirected > 0) {
        text += "\nNo times: redirected clients get their responses from nodes. Measure there, with\n\
                 `skep probe`.\n";
    } else {
        text += "\nNo responses yet.\n";
    }
    for arm in arms.iter().filter(|arm| arm.strayed > 0) {
        let requests = plural(arm.strayed, "request");
        let _ = writeln!(
            text,
            "{}: {requests} left the group, none of whose nodes could take them",
            arm.name
        );
    }
    if shown.table_full {
        text +=
            "The host table is full: further clients get an arm by the hash of their address.\n";
    }
    text
}

fn counts(arms: &[ComparedArm], is_by_hash: bool) -> String {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = TextTable::new(&[
        ("ARM", left),
        ("POLICY", left),
        ("NODES", left),
        ("CLIENTS", right),
        ("REQUESTS", right),
        ("FAILED", right),
        ("BYTES", right),
        ("HITS", right),
    ]);
    for arm in arms {
        let nodes = if arm.nodes.is_empty() { "all".to_owned() } else { arm.nodes.join(",") };
        table.row([
            arm.name.clone(),
            arm.policy.clone(),
            nodes,
            if is_by_hash { "-".to_owned() } else { count(arm.clients) },
            count(arm.requests + arm.redirected),
            count(arm.failures),
            bytes(arm.bytes),
            permille(arm.hits, arm.lookups),
        ]);
    }
    table.text(COLUMNS, |_| "")
}

fn times(arms: &[ComparedArm]) -> String {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = TextTable::new(&[
        ("ARM", left),
        ("TIME", left),
        ("MEAN", right),
        ("95 %", right),
        ("DEVIATION", right),
        ("P50", right),
        ("P99", right),
    ]);
    let us = |us: f64| latency((us.round() as u64).max(1));
    for arm in arms {
        for (what, times) in [("first byte", arm.first_byte), ("total", arm.total)] {
            let Some(ArmTimes { mean_us, half_width_us, deviation_us, p50_us, p99_us }) = times
            else {
                continue;
            };
            let half =
                half_width_us.map_or_else(|| "-".to_owned(), |half| format!("± {}", us(half)));
            let (mean, deviation) = (us(mean_us), us(deviation_us));
            table.row([
                arm.name.clone(),
                what.into(),
                mean,
                half,
                deviation,
                us(p50_us),
                us(p99_us),
            ]);
        }
    }
    table.text(COLUMNS, |_| "")
}

fn differences(arms: &[ComparedArm]) -> String {
    let Some((first, others)) = arms.split_first() else { return String::new() };
    let mut text = format!("Against {} ({}), with 95 % confidence:\n", first.name, first.policy);
    for arm in others {
        for (what, of) in
            [("first byte", arm.first_byte_difference), ("total", arm.total_difference)]
        {
            let _ = writeln!(text, "{} {what}: {}", arm.name, difference(of));
        }
    }
    text
}

fn difference(of: Option<TimeDifference>) -> String {
    let Some(of) = of else {
        return "too few clients to say: at least two of each arm, better dozens".into();
    };
    let ms = |us: f64| us / 1e3;
    let verdict = match of.significant {
        true if of.mean_us < 0.0 => "significantly shorter",
        true => "significantly longer",
        false => "no significant difference",
    };
    let (mean, low, high) = (ms(of.mean_us), ms(of.low_us), ms(of.high_us));
    format!("{mean:+.3} ms ({low:+.3} to {high:+.3}), {verdict}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str, total: Option<ArmTimes>, difference: Option<TimeDifference>) -> ComparedArm {
        ComparedArm {
            name: name.into(),
            policy: "round-robin".into(),
            weight: 1,
            nodes: vec!["node-1".into(), "node-2".into()],
            clients: 12,
            requests: 1_200,
            failures: 3,
            redirected: 0,
            strayed: 0,
            bytes: 1 << 20,
            hits: 9,
            lookups: 10,
            first_byte: total,
            total,
            first_byte_difference: difference,
            total_difference: difference,
        }
    }

    fn test(arms: Vec<ComparedArm>) -> String {
        let shown = PolicyComparison {
            service: "web".into(),
            counted_ms: 61_000,
            table_full: false,
            by_hash: false,
            arms,
        };
        let text = comparison(&shown);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        text
    }

    #[test]
    fn it_is_said_plainly_whether_arms_differ() {
        let times = ArmTimes {
            mean_us: 2_500.0,
            half_width_us: Some(100.0),
            deviation_us: 800.0,
            p50_us: 2_400.0,
            p99_us: 9_000.0,
        };
        let differs = |mean_us, low_us, high_us, significant| {
            Some(TimeDifference { mean_us, low_us, high_us, significant })
        };
        let text = test(vec![
            arm("a", Some(times), None),
            arm("b", Some(times), differs(-900.0, -1_100.0, -700.0, true)),
            arm("c", Some(times), differs(50.0, -60.0, 160.0, false)),
            arm("d", Some(ArmTimes { half_width_us: None, ..times }), None),
        ]);
        for line in [
            "web: 4 arms compared for 1m 1s, 48 clients\n",
            "Against a (round-robin), with 95 % confidence:\n",
            "b total: -0.900 ms (-1.100 to -0.700), significantly shorter\n",
            "c total: +0.050 ms (-0.060 to +0.160), no significant difference\n",
            "d total: too few clients to say",
            "2.50 ms  ± 0.10 ms",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        assert!(
            test(vec![arm("a", None, None), arm("b", None, None)]).contains("No responses yet")
        );
        let redirected =
            ComparedArm { redirected: 5, requests: 0, strayed: 2, ..arm("b", None, None) };
        let text = test(vec![arm("a", None, None), redirected]);
        assert!(
            text.contains("`skep probe`") && text.contains("b: 2 requests left the group"),
            "{text}"
        );
    }
}
