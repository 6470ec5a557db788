//! Started as root: the user that serves then, the remaining root privileges, and the messages if that user
//! cannot read or write what it must.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal};
use skep_tests::privileges::{assert_has_nothing, assert_serves, command_line, family, threads};
use skep_tests::{
    Finished, FreePort, PATIENCE, RawClient, Site, Skep, SourceAddress, poll_until, run_to_end,
    server, skip,
};

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("who is not root has nothing to give up");
    }
    is_root
}

fn site() -> Site {
    Site::new().with("a.txt", "aaa")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn answers(address: SocketAddr) -> bool {
    RawClient::try_connect(address).is_ok_and(|mut client| {
        client.ask("/a.txt");
        client.try_response().is_ok()
    })
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A cluster of processes with one config.
struct Machines {
    folder: Site,
    _site: Site,
    ports: Vec<FreePort>,
    config: String,
}

impl Machines {
    /// A dispatcher and a node that share caches and report their load; `lines` precede all tables.
    fn new(dispatch: &str, lines: &str) -> Self {
        let site = site();
        let folder = Site::guarded().with("key", [b'k'; 32]);
        set_mode(&folder.path("key"), 0o600);
        let ports: Vec<_> = (0..4).map(|_| FreePort::claim()).collect();
        let [outer, inner, node, agent] = [0, 1, 2, 3].map(|it| ports[it].address());
        let (root, files) = (folder.root().display(), site.root().display());
        let config = format!(
            "state_dir = \"{root}/state\"\nkey_file = \"{root}/key\"\n{lines}\n\
             [admin]\nlisten = \"off\"\n\
             [[dispatcher]]\nname = \"gate\"\naddress = \"{inner}\"\n\
             [[node]]\nname = \"comb\"\naddress = \"{node}\"\nagent = \"{agent}\"\n\
             [[service]]\nname = \"web\"\nlisten = \"{outer}\"\ndispatch = \"{dispatch}\"\n\
             [[site]]\nroot = \"{files}\"\ncontent = \"shared\"\n"
        );
        folder.write("skep.toml", &config);
        Self { folder, _site: site, ports, config }
    }

    fn command(&self, name: &str, wrapper: &[&str]) -> Command {
        let (binary, config) = (Skep::binary(), self.folder.path("skep.toml"));
        let run = [text(&binary), "run", "--config", text(&config), "--as", name];
        let all: Vec<&str> = wrapper.iter().copied().chain(run).collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        command
    }

    #[track_caller]
    fn run(&self, name: &str, wrapper: &[&str]) -> Skep {
        let port = if name == "gate" { 0 } else { 2 };
        Skep::run_command(&mut self.command(name, wrapper), self.ports[port].address())
    }

    #[track_caller]
    fn fail(&self, name: &str) -> Finished {
        Skep::start_command(&mut self.command(name, &[])).finish()
    }
}

/// Asserts that the output is one line that contains all of this, and the exit code is 1.
#[track_caller]
fn assert_sentence(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    let last = finished.stderr.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("skep: "), "{}", finished.stderr);
    for word in words {
        assert!(last.contains(word), "{word:?} in {last}");
    }
}

#[test]
fn a_server_that_root_starts_is_somebody_else_in_every_thread() {
    if !is_root() {
        return;
    }
    let site = site();
    let skep = Skep::serve(site.root(), &["--threads", "2"]);
    skep.connect().get("/a.txt").assert_status(200);
    assert_serves(skep.pid(), &[]);
}

#[test]
fn so_are_dispatchers_and_nodes_of_proxies_and_redirects() {
    if !is_root() {
        return;
    }
    for dispatch in ["proxy", "redirect"] {
        let machines = Machines::new(dispatch, "");
        // The groups of the starting user must not be kept.
        let wrapper = ["setpriv", "--groups=4,24,27"];
        let (node, gate) = (machines.run("comb", &wrapper), machines.run("gate", &wrapper));
        poll_until(PATIENCE, "the node is up", || {
            matches!(gate.connect().get("/a.txt").status, 200 | 307)
        });
        node.connect().get("/a.txt").assert_status(200);
        for skep in [&node, &gate] {
            assert_serves(skep.pid(), &[]);
        }
        let socket = fs::metadata(machines.folder.path("state/comb.sock")).unwrap();
        assert_eq!((socket.uid(), socket.mode() & 0o777), (server(), 0o660));
        let state = fs::metadata(machines.folder.path("state")).unwrap();
        assert_eq!((state.uid(), state.mode() & 0o777), (server(), 0o750));
    }
}

#[test]
fn so_is_all_that_skep_up_starts_also_what_it_starts_again() {
    if !is_root() {
        return;
    }
    for dispatch in ["proxy", "redirect"] {
        let site = site();
        // Only root can bind such a port; no other test uses this address.
        let listen = format!("{}:80", SourceAddress::new().address());
        let arguments =
            ["--nodes", "2", "--dispatch", dispatch, "--threads", "1", "--listen", &listen];
        let mut all = vec!["up", text(site.root()), "--admin", "off"];
        all.extend(arguments);
        let skep = Skep::start(&all);
        poll_until(PATIENCE, "the cluster is ready", || skep.stdout_text().contains("ready on"));
        let servers = || -> Vec<Pid> {
            let family = family(skep.pid()).into_iter().skip(1);
            family.filter(|pid| command_line(*pid).contains(" run ")).collect()
        };
        let before = servers();
        assert_eq!(before.len(), 3, "a dispatcher and two nodes");
        before.iter().for_each(|pid| assert_serves(*pid, &[]));
        let dispatcher = before.iter().find(|pid| command_line(**pid).contains("dispatcher"));
        rustix::process::kill_process(*dispatcher.unwrap(), Signal::KILL).unwrap();
        let address = listen.parse().unwrap();
        // Its socket is bound before it drops root; a process that answers has dropped it.
        poll_until(PATIENCE, "the dispatcher is back", || {
            servers().len() == 3 && servers() != before && answers(address)
        });
        servers().iter().for_each(|pid| assert_serves(*pid, &[]));
        skep.signal(Signal::TERM);
        assert_eq!(skep.finish().code, Some(0));
    }
}

#[test]
fn the_config_names_the_user_and_every_group() {
    if !is_root() {
        return;
    }
    let numbers = "[machine]\nuser = \"70001\"\ngroups = [\"70002\", \"70003\"]";
    let machines = Machines::new("proxy", numbers);
    let node = machines.run("comb", &["setpriv", "--groups=4,24,27"]);
    for thread in threads(node.pid()) {
        assert_eq!((&thread.users, &thread.groups), (&vec![70_001; 4], &vec![70_001; 4]));
        assert_eq!(thread.more_groups, [70_002, 70_003]);
        assert_has_nothing(&thread, "skep run");
    }
    drop(node);

    // If the user must be root, it is root without capabilities.
    let machines = Machines::new("proxy", "[machine]\nuser = \"root\"");
    let node = machines.run("comb", &["setpriv", "--groups=4,24,27"]);
    for thread in threads(node.pid()) {
        assert_eq!((&thread.users, thread.more_groups.len()), (&vec![0; 4], 0));
        assert_has_nothing(&thread, "skep run");
    }
    drop(node);

    for (lines, words) in [
        ("[machine]\nuser = \"no.such\"", ["no user \"no.such\"", "machine.user"]),
        ("[machine]\ngroups = [\"no.such\"]", ["no group \"no.such\"", "machine.groups"]),
    ] {
        assert_sentence(&Machines::new("proxy", lines).fail("comb"), &words);
    }
}

#[test]
fn capabilities_of_the_service_manager_go_once_they_were_used() {
    if !is_root() {
        return;
    }
    let site = site();
    let listen = format!("{}:80", SourceAddress::new().address());
    let user = format!("{}", server());
    let uid = format!("--reuid={user}");
    let gid = format!("--regid={user}");
    let binary = Skep::binary();
    let ambient = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"];
    let serve = [text(&binary), "serve", text(site.root()), "--listen", &listen];
    let mut command = Command::new("setpriv");
    command.args([&uid, &gid, "--clear-groups"]).args(ambient).args(serve);
    let skep = Skep::start_command(&mut command);
    let address = listen.parse().unwrap();
    poll_until(PATIENCE, "it listens", || RawClient::try_connect(address).is_ok());
    RawClient::connect(address).get("/a.txt").assert_status(200);
    for thread in threads(skep.pid()) {
        // A process that was not root cannot drop the bounding set, and cannot use it.
        let [inheritable, permitted, effective, _, ambient] = thread.capabilities;
        assert_eq!([inheritable, permitted, effective, ambient], [0; 4], "{thread:?}");
        assert!(thread.no_new_privs, "{thread:?}");
    }
}

#[test]
fn what_that_user_cannot_read_or_write_is_a_sentence_at_the_start() {
    if !is_root() {
        return;
    }
    let user = fs::read_to_string("/etc/passwd").unwrap();
    let user = user.lines().find(|line| line.contains(&format!(":x:{}:", server()))).unwrap();
    let user = user.split(':').next().unwrap();
    let site = site();
    let root = text(site.root());
    set_mode(site.root(), 0o700);
    chown(site.root(), Some(0), Some(0)).unwrap();
    let closed = [root, user, "0700", "belongs to root", "chmod o+", "--user", "machine.user"];
    let free = ["--listen", "127.0.0.1:0"];
    for command in [&["serve", root][..], &["up", root, "--nodes", "1", "--admin", "off"]] {
        assert_sentence(&run_to_end(&[command, &free].concat()), &closed);
        // The suggested option works.
        let as_root = Skep::start(&[command, &free, &["--user", "root"]].concat());
        poll_until(PATIENCE, "root reads it", || as_root.stdout_text().contains(" on http://"));
    }
    // The message names the parent folder that is inaccessible.
    let below = site.path("below");
    fs::create_dir(&below).unwrap();
    let on_the_way = [text(&below), &format!("{root} belongs to root")];
    assert_sentence(&run_to_end(&["serve", text(&below), free[0], free[1]]), &on_the_way);

    set_mode(site.root(), 0o755);
    let log = site.path("log");
    let refused = run_to_end(&["serve", root, "--access-log", text(&log), free[0], free[1]]);
    assert_sentence(&refused, &["access log", text(&log), user, "chown"]);

    let machines = Machines::new("proxy", "");
    let state = machines.folder.path("state");
    fs::create_dir(&state).unwrap();
    assert_sentence(&machines.fail("comb"), &["state_dir", text(&state), user, "chown"]);
    chown(&state, Some(server()), None).unwrap();
    let config = machines.folder.path("skep.toml");
    set_mode(&config, 0o600);
    assert_sentence(&machines.fail("comb"), &["config", text(&config), user, "chmod o+r"]);
    set_mode(&config, 0o644);
    // The key is read while it is still root: it may belong to root alone.
    machines.run("comb", &[]).connect().get("/a.txt").assert_status(200);
}

#[test]
fn logs_are_rotated_and_configs_reloaded_by_that_user() {
    let folder = Site::new();
    let log = folder.path("access.log");
    let machines = Machines::new("proxy", &format!("log.access = \"{}\"", text(&log)));
    let node = machines.run("comb", &[]);
    let asks = |path: &str| node.connect().get(path);
    asks("/a.txt").assert_status(200);
    let old = folder.path("access.log.1");
    fs::rename(&log, &old).unwrap();
    let more = format!("{}headers = {{ \"X-New\" = \"yes\" }}\n", machines.config);
    machines.folder.replace("skep.toml", more);
    node.signal(Signal::HUP);
    poll_until(PATIENCE, "the new config counts", || asks("/a.txt").header("x-new").is_some());
    poll_until(PATIENCE, "the log is another file", || {
        asks("/b.txt");
        fs::read_to_string(&log).is_ok_and(|text| text.contains("/b.txt"))
    });
    if rustix::process::geteuid().is_root() {
        assert_eq!(fs::metadata(&log).unwrap().uid(), server());
        assert_serves(node.pid(), &[]);
    }
    // A site that it may not read is refused, and the old config remains active.
    if is_root() {
        let closed = folder.path("closed");
        fs::create_dir(&closed).unwrap();
        set_mode(&closed, 0o700);
        let before = machines.folder.path("skep.toml");
        let text_before = fs::read_to_string(before).unwrap();
        let start = text_before.rfind("root = ").unwrap();
        let end = start + text_before[start..].find('\n').unwrap();
        let closed = format!("root = \"{}\"", text(&closed));
        let changed = [&text_before[..start], &closed, &text_before[end..]].concat();
        machines.folder.replace("skep.toml", changed);
        node.signal(Signal::HUP);
        poll_until(PATIENCE, "the refusal", || {
            node.stderr_text().contains("is closed to the user")
        });
        asks("/a.txt").assert_status(200);
    }
}

/// The kernel restricts writing to the folders that existed at the start (Landlock), not to their names.
#[test]
fn another_folder_in_the_place_of_the_logs_is_not_written_to() {
    let (site, folder) = (site(), Site::new());
    let logs = folder.path("logs");
    let make = || {
        fs::create_dir(&logs).unwrap();
        set_mode(&logs, 0o777);
    };
    make();
    let log = logs.join("access.log");
    let skep = Skep::serve(site.root(), &["--access-log", text(&log)]);
    if skep.stderr_text().contains("continuing without this restriction") {
        return skip("this kernel has no Landlock");
    }
    let old = folder.path("logs.1");
    fs::rename(&logs, &old).unwrap();
    make();
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "it is refused", || {
        skep.stderr_text().contains("cannot reopen the access log")
    });
    assert!(!log.exists());
    skep.connect().get("/a.txt?after").assert_status(200);
    poll_until(PATIENCE, "the old log goes on", || {
        fs::read_to_string(old.join("access.log")).is_ok_and(|text| text.contains("/a.txt?after"))
    });
}
