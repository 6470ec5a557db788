//! Changes by others on a machine in direct dispatch are repaired and logged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use aya::maps::{Array, HashMap, Map, MapData};
use rustix::process::{Signal, kill_process};
use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, SHORT, Setup};
use skep_tests::{PATIENCE, Skep, UnreadLog, poll_until};

const DISPATCHER: &str = "dispatcher-1";
const OTHER: &str = "dispatcher-2";
const NODE: &str = "node-1";

/// Waits until a client's new connection is answered.
#[track_caller]
fn wait_answer(cluster: &DirectCluster) {
    poll_until(PATIENCE, "an answer", || {
        cluster.ask("client-1", cluster.vip(), SHORT.0) == Ok(NODE.to_owned())
    });
}

#[test]
fn what_is_removed_from_a_dispatcher_is_put_back() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    let vip = cluster.vip().ip().to_string();
    // As a restarted network manager does.
    cluster.tool(DISPATCHER, "ip", &["address", "del", &vip, "dev", "eth0"]);
    cluster.wait_log(DISPATCHER, &format!("removed from this machine: {vip} on eth0"));
    poll_until(PATIENCE, "the address is back", || cluster.holders() == [DISPATCHER]);
    wait_answer(&cluster);
    assert_eq!(cluster.metric(DISPATCHER, "skep_direct_addresses_held"), 1.0);
    // As the upgrade of another program does that cleans up.
    cluster.tool(DISPATCHER, "sh", &["-c", "rm /sys/fs/bpf/skep/*/dispatch/link-*"]);
    cluster.wait_log(DISPATCHER, "packet program was detached from its device, eth0");
    wait_answer(&cluster);
    assert!(cluster.tool(DISPATCHER, "ip", &["link", "show", "dev", "eth0"]).contains("xdp"));
}

#[test]
fn what_is_removed_from_a_node_is_put_back() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    let vip = cluster.vip().ip().to_string();
    let address = || cluster.tool(NODE, "ip", &["-o", "address", "show", "to", &vip]);
    cluster.tool(NODE, "ip", &["address", "del", &vip, "dev", "lo"]);
    poll_until(PATIENCE, "the address is back", || address().contains("lo"));
    cluster.wait_log(NODE, &format!("removed from this machine: {vip} on lo"));
    wait_answer(&cluster);
    // As `sysctl --system` does.
    let setting = "/proc/sys/net/ipv4/conf/eth0/arp_ignore";
    cluster.tool(NODE, "sh", &["-c", &format!("echo 0 > {setting}")]);
    poll_until(PATIENCE, "it is silent again", || {
        cluster.tool(NODE, "cat", &[setting]).trim() == "1"
    });
    cluster.wait_log(NODE, "net.ipv4.conf.eth0.arp_ignore");
    cluster.tool(NODE, "sh", &["-c", "rm /sys/fs/bpf/skep/*/node/link-*"]);
    cluster.wait_log(NODE, "packet program was detached");
    poll_until(PATIENCE, "its program is back", || {
        cluster.tool(NODE, "sh", &["-c", "ls /sys/fs/bpf/skep/*/node/"]).contains("link-")
    });
    wait_answer(&cluster);
}

/// Opens a map of the XDP program of a side, on a machine.
fn map_of(cluster: &DirectCluster, machine: &str, side: &str, name: &str) -> Map {
    let path = format!("/sys/fs/bpf/skep/lab/{side}/{name}");
    let open = || Map::from_map_data(MapData::from_pin(path).unwrap()).unwrap();
    cluster.machine(machine).run(open).unwrap()
}

/// Changes one byte of an array element behind the daemon's back, and waits until it is restored and logged.
#[track_caller]
fn change<const N: usize>(
    cluster: &DirectCluster,
    (machine, side, name): (&str, &str, &str),
    (index, byte, value): (u32, usize, u8),
) {
    let mut map: Array<MapData, [u8; N]> = map_of(cluster, machine, side, name).try_into().unwrap();
    let before = map.get(&index, 0).unwrap();
    let mut changed = before;
    changed[byte] = value;
    assert_ne!(changed, before);
    map.set(index, changed, 0).unwrap();
    poll_until(PATIENCE, "it is put back", || map.get(&index, 0).unwrap()[byte] == before[byte]);
    cluster.wait_log(machine, &format!("the map {name} of the packet program"));
}

#[test]
fn maps_that_others_change_are_written_again_and_connections_survive() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 2)) else { return };
    let clients = cluster.bed().clients();
    let downloads = Loads::start(clients, |it| cluster.downloads(10).start_in(it).unwrap());
    downloads.wait_flowing(20);
    let requests = Loads::start(clients, |it| cluster.stream(50).start_in(it).unwrap());
    requests.wait_for_more(100);
    let complaints = || cluster.metric(DISPATCHER, "skep_direct_complaints");
    // On a busy machine the first check may precede the claim.
    poll_until(PATIENCE, "no complaints", || complaints() == 0.0);
    let on = |name| (DISPATCHER, "dispatch", name);
    // Draining: the node keeps its connections.
    change::<16>(&cluster, on("nodes"), (1, 6, 1));
    assert!(complaints() >= 1.0);
    // The limit of new flows.
    change::<48>(&cluster, on("settings"), (0, 15, 1));
    // The node's own index, which its program needs.
    change::<48>(&cluster, (NODE, "node", "settings"), (0, 36, 9));
    change_services(&cluster);
    requests.wait_for_more(100);
    assert!(requests.stop().iter().all(|report| report.failed == 0));
    // New connections that hit the changed row are refused until it is restored.
    change_rows(&cluster);
    assert_eq!(downloads.failed(), 0);
    assert!(downloads.stop().iter().all(|report| report.failed == 0));
}

/// Changes the balancing policy, and adds a service that is not configured.
fn change_services(cluster: &DirectCluster) {
    let map = || map_of(cluster, DISPATCHER, "dispatch", "services");
    let mut services: HashMap<MapData, [u8; 20], [u8; 8]> = map().try_into().unwrap();
    let before = services.iter().map(Result::unwrap).collect::<Vec<_>>();
    let (key, mut value) = before[0];
    value[3] = 0;
    services.insert([9; 20], value, 0).unwrap();
    services.insert(key, value, 0).unwrap();
    poll_until(PATIENCE, "services are put back", || {
        services.iter().map(Result::unwrap).collect::<Vec<_>>() == before
    });
    cluster.wait_log(DISPATCHER, "the map services of the packet program");
}

/// Writes rows without nodes, to the active table and to the inactive half.
fn change_rows(cluster: &DirectCluster) {
    const ROWS: u32 = 65_537;
    let map = map_of(cluster, DISPATCHER, "dispatch", "rows");
    let mut rows: Array<MapData, [u16; 8]> = map.try_into().unwrap();
    for half in [0, ROWS] {
        rows.set(half + 40_000, [0xffff; 8], 0).unwrap();
    }
    cluster.wait_log(DISPATCHER, "the map rows of the packet program");
    // Restored in the half that was inactive.
    poll_until(PATIENCE, "rows are put back", || {
        [0, ROWS].iter().any(|half| rows.get(&(half + 40_000), 0).unwrap() != [0xffff; 8])
    });
}

/// Starts the dispatcher's netguard separately from its daemon, with the command that becomes it.
fn netguard(cluster: &DirectCluster, command: &mut Command) -> Skep {
    let config = cluster.path(&format!("{DISPATCHER}.toml"));
    let arguments = ["netguard", "--config", config.to_str().unwrap(), "--as", DISPATCHER];
    let guard = Skep::start_command(command.args(arguments));
    poll_until(PATIENCE, "netguard listens", || guard.stdout_text().contains("netguard ready"));
    guard
}

#[test]
fn netguard_executes_orders_although_nobody_reads_its_log() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let mut log = UnreadLog::new();
    let mut command = cluster.machine(DISPATCHER).command("sh");
    let _guard = netguard(&cluster, command.args(log.arguments()).arg(Skep::binary()));
    log.fill();
    // The log contains who controls it, and how packets are steered.
    cluster.run_all();
    cluster.wait_serving();
}

#[test]
fn netguard_releases_the_addresses_of_a_dispatcher_that_hangs() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(2, 1)) else { return };
    let guard = netguard(&cluster, &mut cluster.machine(DISPATCHER).command(Skep::binary()));
    // So that it is the active one.
    cluster.run(DISPATCHER);
    cluster.wait_active();
    cluster.run(OTHER);
    cluster.run(NODE);
    wait_answer(&cluster);

    let pid = cluster.daemon(DISPATCHER).pid();
    kill_process(pid, Signal::STOP).unwrap();
    // Both hold the addresses, until the daemon has been silent for longer than an upgrade takes.
    poll_until(PATIENCE, "a takeover", || cluster.holders().len() == 2);
    poll_until(PATIENCE, "a release", || cluster.holders() == [OTHER]);
    poll_until(PATIENCE, "it is said", || {
        guard.stderr_text().contains("virtual addresses are released")
    });
    wait_answer(&cluster);
    kill_process(pid, Signal::CONT).unwrap();
    cluster.wait_log(DISPATCHER, "not active any more");
    assert_eq!(cluster.holders(), [OTHER]);
    wait_answer(&cluster);
}

#[test]
fn a_damaged_store_is_moved_aside_and_its_epochs_are_skipped() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let file = cluster.path("state").join(format!("{DISPATCHER}.redb"));
    let folder = file.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(&file, "no store").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    cluster.run_all();
    cluster.wait_serving();
    assert_eq!(fs::read(file.with_extension("redb.damaged")).unwrap(), b"no store");
    cluster.wait_log(DISPATCHER, "damaged, or not a store of Skep");
    let epoch = cluster.status(DISPATCHER)["epoch"].as_u64().unwrap();
    assert!(epoch >> 16 > 8, "{epoch}: an earlier process may have used the first ones");
}

#[test]
fn a_full_disk_keeps_no_dispatcher_from_starting() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let state = cluster.path("state");
    fs::create_dir_all(&state).unwrap();
    // The node uses the folder too.
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    let folder = state.to_str().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=64k,mode=777", "lab", folder];
    cluster.tool(DISPATCHER, "mount", &mount);
    let fill = format!("cat /dev/zero >{folder}/all 2>/dev/null || chmod 666 {folder}/all");
    cluster.tool(DISPATCHER, "sh", &["-c", &fill]);
    cluster.run_all();
    cluster.wait_serving();
    cluster.wait_log(DISPATCHER, "epochs cannot be persisted");
    // As an operator does to free space.
    cluster.tool(DISPATCHER, "rm", &[&format!("{folder}/all")]);
    cluster.tool(DISPATCHER, "mount", &["-o", "remount,size=64m", folder]);
    cluster.wait_log(DISPATCHER, "epochs can be persisted again");
    cluster.tool(DISPATCHER, "test", &["-s", &format!("{folder}/{DISPATCHER}.redb")]);
    assert_eq!(cluster.holders(), [DISPATCHER]);
}

#[test]
fn a_sole_dispatcher_steers_by_its_last_table_while_no_daemon_runs() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    let clients = &cluster.bed().clients()[..1];
    let downloads =
        Loads::start(clients, |client: &Machine| cluster.downloads(20).start_in(client).unwrap());
    downloads.wait_flowing(20);
    cluster.kill_alone(DISPATCHER);
    // No other dispatcher can have taken over, so it does not wait.
    poll_until(PATIENCE, "netguard ends, too", || cluster.processes(DISPATCHER, "").is_empty());
    for _ in 0..50 {
        assert_eq!(cluster.ask("client-1", cluster.vip(), SHORT.0), Ok(NODE.to_owned()));
    }
    downloads.wait_flowing(20);
    assert_eq!(cluster.holders(), [DISPATCHER]);
    let reports = downloads.stop();
    assert!(reports.iter().all(|it| (it.failed, it.resets) == (0, 0)), "{reports:?}");
}

#[test]
fn a_node_that_answers_arp_deposes_nobody_and_is_put_right() {
    let Some(cluster) = DirectCluster::start(Setup::of(2, 1)) else { return };
    let active = cluster.wait_active();
    let epoch = cluster.status(&active)["epoch"].clone();
    let complains = || cluster.status(&active)["complaints"].to_string().contains("answers ARP");
    let conf = "/proc/sys/net/ipv4/conf";
    let settings = ["all/arp_ignore", "eth0/arp_ignore", "all/arp_announce", "eth0/arp_announce"];
    let reset = settings.map(|setting| format!("echo 0 >{conf}/{setting}")).join("; ");
    let ask = format!("ip neigh flush all; ping -c 1 -W 1 {} || true", cluster.vip().ip());
    // It is repaired at once, so this is repeated, as by a network manager.
    poll_until(PATIENCE, "a complaint", || {
        cluster.tool(NODE, "sh", &["-c", &reset]);
        cluster.tool("client-2", "sh", &["-c", &ask]);
        complains()
    });
    let log = cluster.log(&active);
    assert!(log.contains(&format!("node {NODE} answers ARP")), "{log}");
    poll_until(PATIENCE, "the complaint goes", || !complains());
    assert_eq!(cluster.holders(), std::slice::from_ref(&active));
    assert_eq!(cluster.status(&active)["epoch"], epoch, "no other term has begun");
    wait_answer(&cluster);
}
