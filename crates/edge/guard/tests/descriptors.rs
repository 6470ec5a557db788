//! A process that has reached its limit of descriptors. A separate test program, since the limit is per
//! process.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, recv, sendmsg, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skep_guard::HandoffGuard;
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::{HandoffOrder, HandoffResult};

fn answer(client: &OwnedFd, results: &[HandoffResult], descriptors: &[File]) {
    let bytes = postcard::to_allocvec(&results).unwrap();
    let own: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !own.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&own)));
    }
    sendmsg(client, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn a_socket_that_finds_no_room_is_missing_and_orders_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("comb-1.handoff.sock");
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let greet = || {
        let client = accept(&listener).unwrap();
        recv(&client, &mut [0; 64][..], RecvFlags::empty()).unwrap();
        answer(&client, &[HandoffResult::Done], &[]);
        client
    };
    let (mut guard, client) = thread::scope(|scope| {
        let client = scope.spawn(greet);
        (HandoffGuard::connect(&path).unwrap(), client.join().unwrap())
    });
    let ends = ("192.0.2.1:40000".parse().unwrap(), "198.51.100.1:80".parse().unwrap());
    let id = SocketId::new(ends.0, ends.1).unwrap();
    let order = |id| (HandoffOrder::Create(id), None);
    assert!(guard.try_send(&[order(id), order(id)]).unwrap());
    let sockets = [(); 2].map(|()| File::open("/dev/null").unwrap());
    answer(&client, &[HandoffResult::Created, HandoffResult::Created], &sockets);

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let answers = guard.try_receive();
    setrlimit(Resource::Nofile, limit).unwrap();
    let answers = answers.unwrap().unwrap();
    assert!(answers.iter().all(|it| it.result == HandoffResult::Created && it.socket.is_none()));
    assert_eq!(answers.len(), 2);

    assert!(guard.try_send(&[order(id)]).unwrap());
    answer(&client, &[HandoffResult::Created], &sockets[..1]);
    assert!(guard.try_receive().unwrap().unwrap()[0].socket.is_some());
}
