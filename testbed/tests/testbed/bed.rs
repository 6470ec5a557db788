//! Beds and their machines: they reach each other, and nothing of them stays.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::common::{Traces, echo, poll_until, reaches, root_or_skip};
use skep_testbed::{Bed, Frames, Machine, MachineRole, TestbedError, Topology};

fn small() -> Topology {
    Topology { dispatchers: 1, nodes: 2, ..Topology::default() }
}

fn addresses(machine: &Machine) -> [IpAddr; 2] {
    [machine.ipv4().into(), machine.ipv6().into()]
}

#[test]
fn all_machines_reach_each_other_by_either_protocol_on_one_lan_and_behind_a_router() {
    if !root_or_skip() {
        return;
    }
    for (router, frames) in [(false, Frames::Wire), (true, Frames::Wire), (true, Frames::Large)] {
        let topology = Topology { clients: 2, router, origin: true, frames, ..small() };
        let bed = Bed::new(&topology).unwrap();
        assert_eq!(bed.machines().len(), 2 + usize::from(router) + 1 + 2 + 1);
        for from in bed.machines() {
            for to in bed.machines() {
                for address in addresses(to) {
                    assert!(reaches(from, to, address), "{} to {address}", from.name());
                }
            }
        }
    }
}

#[test]
fn machines_know_their_addresses_and_devices() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new(&small()).unwrap();
    assert_eq!(bed.nodes().len(), 2);
    assert_eq!((bed.dispatchers().len(), bed.clients().len()), (1, 1));
    assert!(bed.router().is_none() && bed.origin().is_none());
    assert!(bed.machine("node-3").is_none());
    let node = bed.machine("node-2").unwrap();
    assert_eq!((node.name(), node.role()), ("node-2", MachineRole::Node));
    let file = format!("/sys/class/net/{}/address", node.device());
    let found = node.run(|| std::fs::read_to_string(file).unwrap()).unwrap();
    let expected = node.mac().map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(found.trim(), expected);
    let shown = output(node.command("ip").args(["-o", "address"]));
    assert!(shown.contains(&format!("{}/25", node.ipv4())), "{shown}");
    assert!(shown.contains(&format!("{}/64", node.ipv6())), "{shown}");
    assert!(!shown.contains("tentative"), "{shown}");
}

#[test]
fn commands_run_inside_and_in_the_same_folder() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new(&small()).unwrap();
    let node = &bed.nodes()[0];
    let here = std::env::current_dir().unwrap();
    assert_eq!(output(&mut node.command("pwd")).trim(), here.to_str().unwrap());
    assert_eq!(output(node.command("pwd").current_dir("/usr")).trim(), "/usr");
    let devices = output(node.command("ls").arg("/sys/class/net"));
    assert_eq!(devices.split_whitespace().collect::<Vec<_>>(), ["eth0", "lo"]);
    let missing = node.command("/no/such/program").spawn().unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn each_machine_has_its_own_pins() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new(&small()).unwrap();
    let make = |node: &Machine| node.run(|| std::fs::create_dir("/sys/fs/bpf/skep")).unwrap();
    make(&bed.nodes()[0]).unwrap();
    make(&bed.nodes()[1]).unwrap();
    assert!(!std::path::Path::new("/sys/fs/bpf/skep").exists());
}

#[test]
fn a_drop_leaves_nothing() {
    if !root_or_skip() {
        return;
    }
    let topology = Topology::from_toml(
        "router = true\norigin = true\n[limits.node]\ncpu_cores = 0.5\nrate_bits_s = 1000000\n\
         loss_percent = 1\n",
    )
    .unwrap();
    let bed = Bed::new(&topology).unwrap();
    let traces = Traces::of(&bed);
    bed.to_host(bed.vip(0).0.into()).unwrap();
    assert!(traces.host_device_is_there());
    let mut orphan = bed.nodes()[0].command("sh");
    // A grandchild that nobody waits for, and that has a session of its own.
    orphan.args(["-c", "setsid sleep 1000 >/dev/null & echo $!"]);
    output(&mut orphan);
    let mut sleep = bed.nodes()[1].command("sleep").arg("1000").spawn().unwrap();
    drop(bed);
    assert!(!sleep.wait().unwrap().success());
    traces.assert_none();
}

/// Run by [`a_killed_owner_leaves_nothing`] in a process of its own.
#[test]
#[ignore = "is a part of another test"]
fn owner_that_waits_to_be_killed() {
    let topology = Topology::from_toml("[limits.node-1]\ncpu_cores = 0.5\n").unwrap();
    let bed = Bed::new(&topology).unwrap();
    bed.to_host(bed.vip(0).0.into()).unwrap();
    let mut sleep = bed.nodes()[0].command("sleep").arg("1000").spawn().unwrap();
    bed.nodes()[1].command("sh").args(["-c", "setsid sleep 1000 &"]).status().unwrap();
    println!("\n{}", serde_json::to_string(&bed.info()).unwrap());
    sleep.wait().unwrap();
}

#[test]
fn a_killed_owner_leaves_nothing() {
    if !root_or_skip() {
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["bed::owner_that_waits_to_be_killed", "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let info = lines.map(Result::unwrap).find(|line| line.starts_with('{')).unwrap();
    let traces = Traces::from_info(serde_json::from_str(&info).unwrap());
    assert!(traces.host_device_is_there());
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The janitor is no child of ours: nobody tells when it is done.
    poll_until("the janitor is done", || traces.file_is_gone());
    traces.assert_none();
}

#[test]
fn a_bed_of_twelve_machines_and_one_of_the_largest_size() {
    if !root_or_skip() {
        return;
    }
    let twelve = Topology { clients: 2, router: true, nodes: 6, origin: true, ..small() };
    let largest = Topology { nodes: 64, router: true, frames: Frames::Large, ..small() };
    for topology in [Topology { dispatchers: 2, ..twelve }, largest] {
        let before = Instant::now();
        let bed = Bed::new(&topology).unwrap();
        let made_ms = before.elapsed().as_millis();
        let (client, last) = (&bed.clients()[0], bed.nodes().last().unwrap());
        assert!(reaches(client, last, last.ipv6().into()));
        let (count, before) = (bed.machines().len(), Instant::now());
        drop(bed);
        let ended_ms = before.elapsed().as_millis();
        eprintln!("a bed of {count} machines: made in {made_ms} ms, ended in {ended_ms} ms");
    }
}

#[test]
fn beds_live_side_by_side() {
    if !root_or_skip() {
        return;
    }
    let make = || Bed::new(&small()).unwrap();
    let beds: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for bed in &beds {
        bed.to_host(bed.vip(0).0.into()).unwrap();
        for other in beds.iter().filter(|other| other.info().slot != bed.info().slot) {
            assert_ne!(bed.nodes()[0].ipv4(), other.nodes()[0].ipv4());
        }
        assert!(reaches(&bed.clients()[0], &bed.nodes()[1], bed.nodes()[1].ipv4().into()));
    }
    let traces: Vec<_> = beds.iter().map(Traces::of).collect();
    let mut beds = beds.into_iter();
    drop(beds.next());
    traces[0].assert_none();
    for bed in beds {
        assert!(reaches(&bed.clients()[0], &bed.nodes()[0], bed.nodes()[0].ipv6().into()));
    }
}

#[test]
fn the_host_reaches_an_address_of_the_bed() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new(&small()).unwrap();
    let vip = Ipv4Addr::new(203, 0, 113, 7);
    bed.to_host(vip.into()).unwrap();
    let node = &bed.nodes()[0];
    let add = node.command("ip").args(["address", "add", "203.0.113.7/32", "dev", "eth0"]).status();
    assert!(add.unwrap().success());
    let listener = node.run(|| TcpListener::bind((vip, 80)).unwrap()).unwrap();
    let server = node.spawn(move || echo(listener.accept().unwrap().0)).unwrap();
    let mut stream = TcpStream::connect((vip, 80)).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
    drop(stream);
    server.join().unwrap().unwrap();
}

#[test]
fn a_killed_machine_is_silent_and_dead_and_comes_back_as_it_was() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new(&small()).unwrap();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let address = SocketAddr::from((node.ipv4(), 8080));
    let listener = node.run(|| TcpListener::bind(address).unwrap()).unwrap();
    let mut stream = client.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    // The only one who could say goodbye on the connection is in the machine.
    let inherits = Stdio::from(std::os::fd::OwnedFd::from(accepted));
    let mut sleep = node.command("sleep").arg("1000").stdin(inherits).spawn().unwrap();
    drop(listener);
    let (mac, ipv4, pid) = (node.mac(), node.ipv4(), node.pid());

    node.kill().unwrap();
    assert!(!sleep.wait().unwrap().success());
    assert_eq!(node.pid(), None);
    assert!(matches!(node.run(|| ()), Err(TestbedError::Dead(_))));
    assert!(matches!(node.kill(), Err(TestbedError::Dead(_))));
    let refused = node.command("true").spawn().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EHOSTDOWN));
    assert!(!reaches(client, node, ipv4.into()));
    stream.set_nonblocking(true).unwrap();
    let silence = stream.read(&mut [0]).unwrap_err();
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock, "neither FIN nor RST");

    node.boot().unwrap();
    node.boot().unwrap();
    assert_ne!(node.pid(), pid);
    assert_eq!((node.mac(), node.ipv4()), (mac, ipv4));
    assert!(reaches(client, node, node.ipv4().into()));
    assert!(reaches(client, node, node.ipv6().into()));
    assert_eq!(bed.info().machines.iter().find(|it| it.name == "node-1").unwrap().pid, node.pid());
}

#[test]
fn a_topology_that_cannot_be_makes_nothing() {
    if !root_or_skip() {
        return;
    }
    let text = "[limits.nodes]\nloss_percent = 1\n";
    let error = Topology::from_toml(text).and_then(|it| Bed::new(&it)).err().unwrap();
    assert!(error.to_string().contains("limits.nodes"), "{error}");
    assert!(matches!(error, TestbedError::Topology(_)));
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}
