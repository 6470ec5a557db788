//! What can be done to the links and processors of machines.

use std::io::{Read, Write, stderr};
use std::net::{Shutdown, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{accept, connect, reaches, root_or_skip};
use skep_testbed::{Bed, Frames, Machine, TestbedError, Topology};

fn small() -> Bed {
    Bed::new(&Topology { dispatchers: 1, nodes: 2, ..Topology::default() }).unwrap()
}

/// Whether each reaches the other.
fn are_linked(a: &Machine, b: &Machine) -> bool {
    let there = reaches(a, b, b.ipv4().into());
    assert_eq!(there, reaches(b, a, a.ipv6().into()), "one way only");
    there
}

/// Which of these pairs are linked; asked at once, since what is lost is waited for.
fn linked<const N: usize>(pairs: [(&Machine, &Machine); N]) -> [bool; N] {
    thread::scope(|scope| {
        let asking = pairs.map(|(a, b)| scope.spawn(move || are_linked(a, b)));
        asking.map(|it| it.join().unwrap())
    })
}

#[test]
fn cables_are_pulled_and_put_in_again() {
    if !root_or_skip() {
        return;
    }
    let bed = small();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let carrier = || {
        let file = "/sys/class/net/eth0/carrier";
        node.run(|| std::fs::read_to_string(file).unwrap()).unwrap().trim() == "1"
    };
    assert!(carrier());
    node.down().unwrap();
    node.down().unwrap();
    assert!(!carrier());
    assert!(!are_linked(client, node));
    assert!(are_linked(client, &bed.nodes()[1]));
    node.up().unwrap();
    assert!(carrier());
    assert!(are_linked(client, node));
}

#[test]
fn a_partition_is_between_two_and_heals() {
    if !root_or_skip() {
        return;
    }
    let topology = Topology { router: true, dispatchers: 1, nodes: 2, ..Topology::default() };
    let bed = Bed::new(&topology).unwrap();
    let (dispatcher, nodes) = (&bed.dispatchers()[0], bed.nodes());
    bed.partition(dispatcher, &nodes[0]).unwrap();
    bed.partition(&nodes[1], &nodes[0]).unwrap();
    let pairs = [(dispatcher, &nodes[0]), (&nodes[0], &nodes[1]), (dispatcher, &nodes[1])];
    assert_eq!(linked(pairs), [false, false, true]);
    bed.heal(&nodes[0], dispatcher).unwrap();
    assert_eq!(linked(pairs), [true, false, true]);
    bed.heal_all().unwrap();
    assert!(are_linked(&nodes[0], &nodes[1]));

    let apart = bed.partition(&bed.clients()[0], &nodes[0]).unwrap_err();
    assert!(matches!(apart, TestbedError::Apart(..)), "{apart}");
    bed.partition(&bed.clients()[0], bed.router().unwrap()).unwrap();
    assert!(!reaches(&bed.clients()[0], &nodes[0], nodes[0].ipv4().into()));
    assert!(are_linked(bed.router().unwrap(), &nodes[0]));
}

/// Datagrams of `count` that come from one machine to another: so few at a time that none is
/// lost for want of room.
fn arrivals(from: &Machine, to: &Machine, count: u32) -> u32 {
    const AT_ONCE: u32 = 64;
    let receiver = to.run(|| UdpSocket::bind((to.ipv4(), 0)).unwrap()).unwrap();
    let sender = from.run(|| UdpSocket::bind((from.ipv4(), 0)).unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let wait = |ms| receiver.set_read_timeout(Some(Duration::from_millis(ms))).unwrap();
    let receive =
        |most: u32| (0..most).take_while(|_| receiver.recv(&mut [0; 100]).is_ok()).count();
    let mut arrived = 0;
    wait(50);
    for begin in (0..count).step_by(AT_ONCE as usize) {
        let some = AT_ONCE.min(count - begin);
        (0..some).for_each(|_| assert_eq!(sender.send(&[0; 100]).unwrap(), 100));
        // All of them, or silence; what is late is heard behind it.
        arrived += receive(some) as u32;
    }
    wait(500);
    arrived + receive(count) as u32
}

#[test]
fn losses_are_about_as_many_as_asked_for() {
    if !root_or_skip() {
        return;
    }
    let bed = small();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    // So that no loss hits the look-up of an address.
    assert!(are_linked(client, node));
    assert_eq!(arrivals(client, node, 2000), 2000);
    node.set_loss(10.0).unwrap();
    // 1,800 are expected, with a deviation of 13.4: ten of these either way.
    for (from, to) in [(client, node), (node, client)] {
        let arrived = arrivals(from, to, 2000);
        eprintln!("10 % loss: {arrived} of 2,000 from {} arrive", from.name());
        assert!((1666..1934).contains(&arrived), "{arrived}");
    }
    assert_eq!(arrivals(client, &bed.nodes()[1], 500), 500);
    node.set_loss(100.0).unwrap();
    assert_eq!(arrivals(client, node, 100), 0);
    node.set_loss(0.0).unwrap();
    assert_eq!(arrivals(client, node, 500), 500);
    assert!(matches!(node.set_loss(-1.0), Err(TestbedError::Unusable(_))));
    assert!(matches!(node.set_loss(f64::NAN), Err(TestbedError::Unusable(_))));
}

/// Time to bring so many bytes from one machine to another by TCP.
fn transfer(from: &Machine, to: &Machine, bytes: usize) -> Duration {
    let listener = to.run(|| TcpListener::bind((to.ipv4(), 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let before = Instant::now();
    let sender = from
        .spawn(move || {
            let mut stream = connect(address);
            stream.write_all(&vec![7; bytes]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        })
        .unwrap();
    let mut received = Vec::new();
    accept(&listener).read_to_end(&mut received).unwrap();
    let time = before.elapsed();
    assert_eq!(received, vec![7; bytes]);
    sender.join().unwrap().unwrap();
    time
}

#[test]
fn rates_are_held_in_both_directions_and_lifted() {
    if !root_or_skip() {
        return;
    }
    const BYTES: usize = 1_000_000;
    let bed = small();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let fast = transfer(client, node, BYTES);
    node.set_rate(Some(8_000_000)).unwrap();
    for (from, to) in [(client, node), (node, client)] {
        let time = transfer(from, to, BYTES);
        eprintln!("1 MB at 8 Mbit/s: {time:?} (unlimited {fast:?})");
        // A second by the rate, less what the bucket lets through at once. No
        // bound above: that would be a claim about this machine.
        assert!(time >= Duration::from_millis(900), "{time:?}");
    }
    node.set_rate(None).unwrap();
    let qdisc = node.command("tc").args(["qdisc", "show", "dev", "eth0"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&qdisc.stdout).contains("tbf"));
    transfer(client, node, BYTES);
    assert!(matches!(node.set_rate(Some(1)), Err(TestbedError::Unusable(_))));
}

#[test]
fn limits_survive_a_death() {
    if !root_or_skip() {
        return;
    }
    let text = "nodes = 1\ndispatchers = 0\n\
                [limits.node]\nrate_bits_s = 8_000_000\nloss_percent = 100\n";
    let bed = Bed::new(&Topology::from_toml(text).unwrap()).unwrap();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    assert!(!reaches(client, node, node.ipv4().into()));
    node.kill().unwrap();
    node.boot().unwrap();
    assert!(!reaches(client, node, node.ipv4().into()));
    node.set_loss(0.0).unwrap();
    assert!(transfer(client, node, 1_000_000) >= Duration::from_millis(900));
}

/// Processor time that a busy loop in the machine gets in `for_ms`, in ms.
fn busy_ms(machine: &Machine, for_ms: u64) -> u64 {
    let script = format!("timeout {}s sh -c 'while :; do :; done'; times", for_ms as f64 / 1000.0);
    let output = machine.command("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The second line is of the children: minutes and seconds of user time.
    let user = text.lines().nth(1).unwrap().split(' ').next().unwrap();
    let (minutes, seconds) = user.trim_end_matches('s').split_once('m').unwrap();
    (minutes.parse::<f64>().unwrap() * 60e3 + seconds.parse::<f64>().unwrap() * 1e3) as u64
}

#[test]
fn processor_time_is_held_to_the_quota() {
    if !root_or_skip() {
        return;
    }
    let bed = small();
    let node = &bed.nodes()[0];
    match node.set_cpu(Some(0.2)) {
        Err(error @ TestbedError::NoCpuController) => {
            let _ = writeln!(stderr(), "SKIPPED: {error}");
            return;
        }
        result => result.unwrap(),
    }
    let held = busy_ms(node, 1500);
    // 300 ms, and a period's quota or two at the edges.
    assert!(held <= 500, "{held}");
    node.set_cpu(None).unwrap();
    eprintln!("of 1,500 ms: {held} ms at 0.2 cores, {} ms without limit", busy_ms(node, 1500));
    assert!(matches!(node.set_cpu(Some(0.0)), Err(TestbedError::Unusable(_))));
}

#[test]
fn the_lan_takes_frames_from_xdp_where_frames_are_as_on_a_wire() {
    if !root_or_skip() {
        return;
    }
    for (frames, expected) in [(Frames::Wire, 2), (Frames::Large, 0)] {
        let topology = Topology { dispatchers: 2, frames, ..Topology::default() };
        let bed = Bed::new(&topology).unwrap();
        let pid = bed.info().switch.to_string();
        let mut nsenter = std::process::Command::new("nsenter");
        let shown = nsenter.args(["--target", &pid, "--net", "ip", "-o", "link"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let with_program = shown.lines().filter(|line| line.contains("prog/xdp"));
        assert_eq!(with_program.count(), expected, "{shown}");
    }
}
