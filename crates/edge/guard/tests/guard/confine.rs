//! What [`confine`] denies, each in a thread of its own.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use skep_guard::privileges::{PrivilegeError, keep_only, serve_as};
use skep_guard::{User, confine};
use socket2::{Domain, Socket, Type};

#[test]
fn other_programs_and_namespaces_are_denied_and_threads_are_not() {
    keep_only(rustix::thread::CapabilitySet::empty()).unwrap();
    confine::deny_calls(confine::Bpf::Denied).unwrap();
    let started = Command::new("true").status().unwrap_err();
    assert_eq!(started.kind(), ErrorKind::PermissionDenied);
    // Without the filter any user may do this, where the machine permits it.
    #[expect(deprecated, reason = "the other call is unsafe for descriptors, which stay here")]
    let unshared = rustix::thread::unshare(UnshareFlags::NEWUSER);
    // With other threads the kernel's own error would be EINVAL.
    assert_eq!(unshared, Err(Errno::PERM));
    // Not a raw socket: the kernel's own error would be ENOPROTOOPT.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let headers = socket.set_header_included_v4(true).unwrap_err();
    assert_eq!(headers.kind(), ErrorKind::PermissionDenied);
    socket.set_tcp_nodelay(true).unwrap();
    socket.set_ttl_v4(64).unwrap();
    // Threads still start, by `clone` instead of `clone3`.
    assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    assert!(fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:"));
}

#[test]
fn files_are_written_where_it_was_said_and_read_everywhere() {
    let [inside, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut open = fs::File::create(outside.path().join("open")).unwrap();
    fs::write(outside.path().join("old"), "old").unwrap();
    keep_only(rustix::thread::CapabilitySet::empty()).unwrap();
    match confine::write_only_below(&[inside.path(), "/nowhere/at/all".as_ref()]) {
        Err(confine::ConfineError::NoLandlock) => {
            eprintln!("SKIPPED: this kernel has no Landlock");
            return;
        }
        confined => confined.unwrap(),
    }
    let [here, there] = [&inside, &outside].map(|folder| folder.path().join("new"));
    fs::write(&here, "new").unwrap();
    fs::rename(&here, inside.path().join("newer")).unwrap();
    fs::remove_file(inside.path().join("newer")).unwrap();
    let old = outside.path().join("old");
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2);
    let denied = [fs::write(&there, ""), fs::write(&old, ""), fs::remove_file(&old)];
    for result in denied {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    // Files that were open stay writable.
    std::io::Write::write_all(&mut open, b"more").unwrap();
}

#[test]
fn a_process_with_threads_is_not_made_somebody_else_by_half() {
    let own = User::current();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| serve_as(&own));
        let refused = refused.join().unwrap().unwrap_err();
        assert!(matches!(refused, PrivilegeError::Threads { threads: 2.. }), "{refused}");
    });
}
