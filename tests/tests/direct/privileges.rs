//! The remaining root privileges in direct dispatch, and what netguard trusts: nothing that the unprivileged
//! user could have written.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::process::Pid;
use skep_tests::direct::{DirectCluster, SHORT, Setup, root_or_skip};
use skep_tests::privileges::{HANDOFFS, assert_guards, assert_serves, command_line, family};
use skep_tests::{Finished, PATIENCE, Site, Skep, poll_until, server};

const DISPATCHER: &str = "dispatcher-1";
const NODE: &str = "node-1";

/// Asserts that all `skep run` and `skep netguard` of a family have the privileges they need, the latter
/// `beside` in addition; returns the number of each.
#[track_caller]
fn assert_all(family: &[Pid], beside: u64) -> (usize, usize) {
    let of = |word: &str| {
        let is_it = |pid: &&Pid| command_line(**pid).contains(word);
        family.iter().filter(is_it).copied().collect::<Vec<_>>()
    };
    let (servers, guards) = (of(" run "), of(" netguard "));
    servers.iter().for_each(|pid| assert_serves(*pid, &[]));
    guards.iter().for_each(|pid| assert_guards(*pid, beside));
    (servers.len(), guards.len())
}

#[test]
fn every_thread_of_every_process_has_what_it_needs_and_no_more() {
    let Some(cluster) = DirectCluster::start(Setup::of(2, 2)) else { return };
    for name in [DISPATCHER, "dispatcher-2", NODE, "node-2"] {
        assert_eq!(assert_all(&family(cluster.daemon(name).pid()), 0), (1, 1), "{name}");
        // Heartbeats have root's real-time priority nevertheless.
        assert!(cluster.log(name).contains("real time"), "{}", cluster.log(name));
    }
    let state = fs::metadata(cluster.path("state")).unwrap();
    assert_eq!((state.uid(), state.mode() & 0o777), (server(), 0o750));
    let guard = fs::metadata(cluster.path("guard")).unwrap();
    assert_eq!((guard.uid(), guard.mode() & 0o022), (0, 0));
}

#[test]
fn so_it_has_where_connections_are_handed_off() {
    let setup = Setup { dispatch: "handoff".into(), ..Setup::of(1, 1) };
    let Some(cluster) = DirectCluster::start(setup) else { return };
    // Only nodes receive handed-off connections.
    for (name, beside) in [(DISPATCHER, 0), (NODE, HANDOFFS)] {
        assert_eq!(assert_all(&family(cluster.daemon(name).pid()), beside), (1, 1), "{name}");
    }
}

#[test]
fn so_has_all_that_skep_up_starts() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new().with("a.txt", "aaa");
    let dir = site.root().to_str().unwrap();
    let listens = ["--listen", "127.0.0.1:80", "--admin", "off"];
    let direct = [&["--dispatch", "direct", "--nodes", "2"], &listens[..]].concat();
    let start = || Skep::start(&[&["up", dir], &direct[..]].concat());
    let skep = start();
    poll_until(PATIENCE, "the cluster is ready", || skep.stdout_text().contains("ready on"));
    assert_eq!(assert_all(&family(skep.pid()), 0), (4, 4));
    skep.signal(rustix::process::Signal::TERM);
    assert_eq!(skep.finish().code, Some(0));

    // A folder that only root can read: one sentence reports it, and nothing is left.
    fs::set_permissions(site.root(), fs::Permissions::from_mode(0o700)).unwrap();
    chown(site.root(), Some(0), Some(0)).unwrap();
    let finished = start().finish();
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    let last = finished.stderr.lines().rfind(|line| line.starts_with("skep: ")).unwrap_or_default();
    for word in ["skep: node-", dir, "belongs to root with mode 0700", "chmod o+", "--user"] {
        assert!(last.contains(word), "{word:?} in {last}");
    }
}

// --- whom netguard trusts ---

/// Asserts that a start fails with one line that contains these words.
#[track_caller]
fn refused(cluster: &DirectCluster, name: &str, words: &[&str]) {
    cluster.spawn(name);
    let Finished { code, stderr, .. } = cluster.end(name);
    assert_eq!(code, Some(1), "{stderr}");
    // netguard's log is written by a separate thread, possibly after the error.
    let last = stderr.lines().rfind(|line| line.starts_with("skep: ")).unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "{word:?} in {stderr}");
    }
}

#[test]
fn what_who_serves_has_written_is_not_obeyed() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    // netguard's state file of changes, with a device name that leads out of the folder of devices, where
    // only root may write.
    let state = cluster.path("state");
    fs::create_dir(&state).unwrap();
    chown(&state, Some(server()), Some(server())).unwrap();
    let victim = cluster.path("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("arp_ignore"), "0").unwrap();
    let device = format!("../../../../../..{}", victim.display());
    let note = format!(
        "{{\"addresses\":[{{\"device\":\"lo\",\"vip\":\"10.99.99.99\"}}],\"settings\":\
         [{{\"knob\":\"ArpIgnore\",\"device\":\"{device}\",\"before\":0,\"ours\":7}}]}}"
    );
    for name in [format!("{NODE}.netguard.json"), format!("{NODE}.json")] {
        fs::write(state.join(&name), &note).unwrap();
        chown(state.join(name), Some(server()), Some(server())).unwrap();
    }
    cluster.run_all();
    cluster.wait_serving();
    assert_eq!(fs::read_to_string(victim.join("arp_ignore")).unwrap(), "0");
    let addresses = cluster.tool(NODE, "ip", &["-o", "addr", "show", "dev", "lo"]);
    assert!(!addresses.contains("10.99.99.99"), "{addresses}");

    // Even in a file that only root can have written, no name leads out of that folder.
    cluster.terminate(NODE);
    poll_until(PATIENCE, "netguard ends", || !cluster.path(&format!("guard/{NODE}.sock")).exists());
    fs::write(cluster.path(&format!("guard/{NODE}.json")), &note).unwrap();
    refused(&cluster, NODE, &["cannot be a network device", "/victim"]);
    assert_eq!(fs::read_to_string(victim.join("arp_ignore")).unwrap(), "0");
}

#[test]
fn a_folder_or_config_that_others_could_change_is_refused() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let guard = cluster.path("guard");
    let refused_with = |path: &Path, owner: u32, mode: u32, words: &[&str]| {
        let before = fs::metadata(path).unwrap();
        chown(path, Some(owner), None).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        refused(&cluster, NODE, words);
        refused(&cluster, DISPATCHER, words);
        chown(path, Some(before.uid()), None).unwrap();
        fs::set_permissions(path, before.permissions()).unwrap();
    };
    fs::create_dir(&guard).unwrap();
    refused_with(&guard, server(), 0o700, &["direct.guard_dir", "mode 0700"]);
    refused_with(&guard, 0, 0o777, &["direct.guard_dir", "mode 0777"]);
    // The parent folder matters as much.
    let top = cluster.path("");
    refused_with(&top, 0, 0o777, &["not safe from others"]);
    for name in [NODE, DISPATCHER] {
        let config = cluster.path(&format!("{name}.toml"));
        chown(&config, Some(server()), None).unwrap();
        refused(&cluster, name, &["the config", "not safe from others"]);
        chown(&config, Some(0), None).unwrap();
    }
    cluster.run_all();
    cluster.wait_serving();
}

#[test]
fn netguard_beside_it_takes_orders_of_the_configured_user_and_of_no_other() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let user = server().to_string();
    let group = fs::read_to_string("/etc/passwd").unwrap();
    let group = group.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        (fields.next()? == user).then(|| fields.next())?
    });
    let group = group.unwrap().to_owned();
    let state = cluster.path("state");
    fs::create_dir(&state).unwrap();
    chown(&state, Some(server()), None).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    chown(cluster.path("key"), Some(server()), None).unwrap();
    cluster.run(DISPATCHER);

    let config = cluster.path(&format!("{NODE}.toml"));
    let config = config.to_str().unwrap();
    let machine = cluster.machine(NODE);
    let mut guard = machine.command(Skep::binary());
    let guard = Skep::start_command(guard.args(["netguard", "--config", config, "--as", NODE]));
    poll_until(PATIENCE, "netguard listens", || guard.stdout_text().contains("netguard ready"));
    assert_guards(guard.pid(), 0);
    let run_as = |user: &str| {
        let ids = [format!("--reuid={user}"), format!("--regid={group}")];
        let ambient = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"];
        let binary = Skep::binary();
        let run = [binary.to_str().unwrap(), "run", "--config", config, "--as", NODE];
        let mut command = machine.command("setpriv");
        command.args(&ids).arg("--clear-groups").args(ambient).args(run);
        Skep::start_command(&mut command)
    };
    // It is in the group, so that it can reach the socket.
    fs::set_permissions(cluster.path("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let stranger = run_as("70001").finish();
    assert_eq!(stranger.code, Some(1), "{}", stranger.stderr);
    poll_until(PATIENCE, "a refusal", || {
        guard.stderr_text().contains("refused a client of another user")
    });
    assert!(guard.stderr_text().contains("70001"), "{}", guard.stderr_text());

    let node = run_as(&user);
    poll_until(PATIENCE, "the node serves", || {
        cluster.ask("client-1", cluster.vip(), SHORT.0).as_deref() == Ok(NODE)
    });
    for thread in skep_tests::privileges::threads(node.pid()) {
        assert_eq!(thread.capabilities[..3], [0; 3], "{thread:?}");
    }
}
