//! Dropping capabilities, each in a thread of its own.

use rustix::net::{AddressFamily, SocketType, ipproto};
use rustix::thread::CapabilitySet;
use skep_guard::privileges::{NETGUARD, has, keep_only};
use std::io::{Write, stderr};

/// Whether this thread may open a raw socket, which requires CAP_NET_RAW.
fn may_open_raw() -> bool {
    rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).is_ok()
}

#[test]
fn what_is_given_up_is_gone_and_what_is_kept_stays() {
    if !has(NETGUARD | CapabilitySet::NET_BIND_SERVICE) {
        let _ = writeln!(stderr(), "SKIPPED: needs root, to have something to give up");
        return;
    }
    keep_only(NETGUARD).unwrap();
    assert!(has(NETGUARD) && may_open_raw());
    assert!(!has(CapabilitySet::NET_BIND_SERVICE) && !has(CapabilitySet::SYS_ADMIN));
    keep_only(CapabilitySet::empty()).unwrap();
    assert!(!has(CapabilitySet::BPF) && !may_open_raw());
    keep_only(NETGUARD).unwrap();
    assert!(!has(CapabilitySet::BPF), "what is gone does not come back");
}

#[test]
fn who_has_nothing_may_give_it_up() {
    let before = has(CapabilitySet::SETPCAP);
    keep_only(CapabilitySet::empty()).unwrap();
    keep_only(CapabilitySet::empty()).unwrap();
    assert!(!has(CapabilitySet::NET_ADMIN));
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    let left = bounding.trim().trim_start_matches('0');
    assert!(left.is_empty() || !before, "a program started now would have {left}");
}
