//! Which arguments are accepted, and the errors for all others.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
}

/// Asserts that a line is refused with the code of wrong usage, by a message
/// that has these words.
#[track_caller]
fn assert_refused(line: &str, words: &[&str]) {
    let error = parse(line).expect_err(line);
    assert_eq!(error.exit_code(), 2, "{line}");
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{line}: {word:?} in:\n{message}");
    }
}

#[test]
fn clap_finds_no_fault_with_the_definitions() {
    Cli::command().debug_assert();
}

#[test]
fn up_has_sensible_defaults() {
    let Command::Up(up) = parse("skep up site").unwrap() else { panic!("no up") };
    assert_eq!(
        (up.nodes, up.dispatch, up.policy.as_str()),
        (3, DispatchMode::Proxy, "round-robin")
    );
    assert_eq!((up.listen.to_string(), up.admin), ("127.0.0.1:8080".to_owned(), None));
    let line = "skep up site --nodes 5 --dispatch redirect --policy maglev-url --listen 0.0.0.0:0 \
                --cache-size 8MiB --threads 2 --access-log - --admin off";
    let Command::Up(up) = parse(line).unwrap() else { panic!("no up") };
    assert_eq!(
        (up.nodes, up.dispatch, up.policy.as_str()),
        (5, DispatchMode::Redirect, "maglev-url")
    );
    assert_eq!((up.cache_size, up.threads, up.admin), (8 << 20, 2, Some(Admin::Off)));
    let line = "skep up site --admin 127.0.0.1:9";
    let Command::Up(up) = parse(line).unwrap() else { panic!("no up") };
    assert_eq!(up.admin, Some(Admin::On(([127, 0, 0, 1], 9).into())));
}

#[test]
fn every_policy_of_the_config_can_be_named() {
    for policy in POLICY_NAMES {
        parse(&format!("skep up site --policy {policy}")).unwrap();
        parse(&format!("skep policy set web {policy}")).unwrap();
    }
}

#[test]
fn a_mode_that_is_none_is_answered_with_all_modes() {
    parse("skep up site --dispatch handoff").unwrap();
    assert_refused("skep up site --dispatch proxi", &["proxi", "proxy", "redirect"]);
}

#[test]
fn typing_errors_are_answered_with_what_was_meant() {
    assert_refused("skep up site --policy round-robbin", &["round-robbin", "'round-robin'"]);
    assert_refused("skep policy set web maglev-ulr", &["'maglev-url'"]);
    assert_refused("skep statsu", &["statsu", "'status'"]);
    assert_refused("skep node drian n", &["drian", "'drain'"]);
    assert_refused("skep up site --nodse 3", &["--nodse", "--nodes"]);
}

#[test]
fn wrong_values_are_refused_with_what_was_expected() {
    assert_refused("skep up", &["<DIR>", "Usage:"]);
    assert_refused("skep up site --nodes 0", &["1..=64"]);
    assert_refused("skep up site --nodes many", &["many"]);
    assert_refused("skep up site --listen 8080", &["8080"]);
    assert_refused("skep up site --admin here", &["ADDR:PORT or off"]);
    assert_refused("skep up site --cache-size 12XB", &["12XB"]);
    assert_refused("skep node add n", &["<ADDR:PORT>"]);
    assert_refused("skep node add n localhost", &["localhost"]);
    assert_refused("skep node weight n heavy", &["heavy"]);
    assert_refused("skep node drain n --wait --timeout soon", &["soon"]);
    assert_refused("skep top --interval 1ms", &["100ms to 60s"]);
    assert_refused("skep top --sort colour", &["name", "latency"]);
    assert_refused("skep status --socket a --api b", &["--socket", "--api"]);
}

#[test]
fn arms_are_read_and_wrong_ones_are_answered_with_what_there_is() {
    let line = "skep policy compare web start --arm a=lard*3:n1,n2 --arm b=random:n3";
    let Command::Policy(PolicyCommand::Compare(compare)) = parse(line).unwrap() else {
        panic!("no comparison")
    };
    let [a, b] = compare.arms.as_slice() else { panic!("{:?}", compare.arms) };
    assert_eq!((a.name.as_str(), a.policy.as_str(), a.weight), ("a", "lard", Some(3)));
    assert_eq!((a.nodes.as_slice(), b.weight), (&["n1".to_owned(), "n2".to_owned()][..], None));
    parse("skep policy compare web --json").unwrap();
    parse("skep policy compare web stop").unwrap();
    for (arm, told) in [
        ("lard", "expected NAME=POLICY"),
        ("=lard", "an arm needs a name"),
        ("a=lrad", "did you mean \"lard\"?; known: random, round-robin"),
        ("a=lard*0", "weight 0: a whole number from 1 to 256"),
        ("a=lard*many", "weight many"),
        ("a=lard:", "an empty group of nodes"),
        ("a=lard:n1,,n2", "an empty group of nodes"),
    ] {
        assert_refused(&format!("skep policy compare web start --arm {arm}"), &[told]);
    }
    assert_refused("skep policy compare web start", &["--arm"]);
    assert_refused("skep policy compare web begin", &["show, start, stop"]);
}

#[test]
fn a_group_without_a_command_shows_its_help() {
    for line in ["skep", "skep node", "skep service", "skep config"] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, "{line}");
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn whom_to_ask_can_be_said_with_every_command() {
    for line in [
        "skep status --json",
        "skep top --interval 500ms --sort load",
        "skep node list --json",
        "skep node drain n --wait --timeout 5s",
        "skep node resume n --service web",
        "skep node add n 127.0.0.1:1 --weight 2 --public-address www:80",
        "skep node remove n --timeout 0ms",
        "skep node weight n 3",
        "skep service list",
        "skep policy set web random",
        "skep reload",
    ] {
        for target in ["", "--socket s", "--api http://h:1 --token-file t", "--config f"] {
            parse(&format!("{line} {target}")).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn the_leash_is_no_option_for_people() {
    let mut command = Cli::command();
    let run = command.find_subcommand_mut("run").unwrap();
    assert!(!run.render_long_help().to_string().contains("leash"));
    let Command::Run(run) = parse("skep run --config f --leashed").unwrap() else { panic!("run") };
    assert!(run.leashed);
}

#[test]
fn a_purge_waits_as_long_as_the_api_does_by_default() {
    let Command::Purge(purge) = parse("skep purge /a").unwrap() else { panic!("purge") };
    assert_eq!(purge.timeout, skep_console::PURGE_MS);
}

#[test]
fn a_probe_has_sensible_defaults_and_bounds() {
    let Command::Probe(ProbeCommand::Run(run)) = parse("skep probe run http://a/b").unwrap() else {
        panic!("no probe")
    };
    assert_eq!((run.interval, run.timeout, run.count), (120_000, 30_000, None));
    assert_eq!((run.out.to_str(), run.label.as_str()), (Some("skep-probe.db"), "probe"));
    parse("skep probe run --list urls").unwrap();
    parse("skep probe report a.db b.db --out r").unwrap();
    for bad in [
        ("skep probe run", "<URL>"),
        ("skep probe run ftp://a/", "the scheme"),
        ("skep probe run a.org/x", "write http://a.org/x"),
        ("skep probe run http://a/ --interval 99ms", "100ms to 24h"),
        ("skep probe run http://a/ --timeout 0s", "1ms to 600s"),
        ("skep probe run http://a/ --count 0", "0 is not in 1.."),
        ("skep probe run http://a/ --insecure", "--insecure"),
        ("skep probe report", "<FILE>"),
        ("skep probe export a.db --csv --json", "cannot be used with"),
    ] {
        assert_refused(bad.0, &[bad.1]);
    }
    let long = format!("skep probe run http://a/ --label {}", "x".repeat(41));
    assert_refused(&long, &["1 to 40 printable characters"]);
}

#[test]
fn what_a_log_is_used_for_has_sensible_defaults_and_bounds() {
    let Command::Policy(PolicyCommand::Advise(advise)) = parse("skep policy advise log").unwrap()
    else {
        panic!("no advice")
    };
    assert_eq!((advise.nodes, advise.memory, advise.link), (None, None, 125_000_000));
    assert_eq!((advise.requests, advise.repetitions, advise.time), (200_000, 5, 60_000));
    let line = "skep policy advise log --config f --service web --nodes 3 --memory 1GiB --link 10Gbit \
                --disk 2Gbit --latency 0ms --cluster-cache --dispatch redirect --current lard \
                --policies lard,random --speed 0.5 --svg a.svg --json";
    parse(line).unwrap();
    let line = "skep bench replay log --url http://h";
    let Command::Bench(BenchCommand::Replay(replay)) = parse(line).unwrap() else {
        panic!("no replay")
    };
    assert_eq!((replay.speed, replay.clients, replay.warm_up), (1.0, 256, 0));
    for (line, words) in [
        ("skep policy advise", "<LOG>"),
        ("skep policy advise log --nodes 0", "1..=1000"),
        ("skep policy advise log --memory 0", "expected more than 0"),
        ("skep policy advise log --link fast", "such as 1Gbit"),
        ("skep policy advise log --disk 1Gbit --origin 1Gbit", "cannot be used with"),
        ("skep policy advise log --service web", "--config"),
        ("skep policy advise log --latency 61s", "up to 60s"),
        ("skep policy advise log --current lrad", "'lard'"),
        ("skep policy advise log --policies lard,lrad", "lrad"),
        ("skep policy advise log --repetitions 1", "2..=100"),
        ("skep policy advise log --speed 0", "expected a number from 0.001"),
        ("skep bench replay log", "--url <URL>"),
        ("skep bench replay log --url https://h", "https is not supported yet"),
        ("skep bench replay log --url http://h --speed=-1", "expected a number from 0.001"),
    ] {
        assert_refused(line, &[words]);
    }
}
