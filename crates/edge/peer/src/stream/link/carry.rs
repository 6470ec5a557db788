//! One link's connection: receives, sends, and detects silence.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::time::Duration;

use skep_wire::cache::FrameDecoder;
use skep_wire::cache::frame::PING;
use skep_wire::limits::LINK_MESSAGE_BYTES_MAX;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};

use super::hub::{Line, Shared};
use super::{LinkEvent, LinkId, LinkMessage, LinkSettings, Lost};
use crate::limits::{LINK_READ_BYTES, LINK_STALL_MS};
use crate::stream::counts::StreamCount;

thread_local! {
    /// The read buffer, shared by all links of a thread.
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; LINK_READ_BYTES].into_boxed_slice());
}

/// Runs `link` to its end, and notifies the hub.
pub(super) async fn carry<In: LinkMessage, Out, C>(
    hub: &Shared<In, Out, C>,
    stream: &TcpStream,
    (link, line): (LinkId, &Line),
    settings: &LinkSettings,
) {
    let heard = Cell::new(Instant::now());
    let why = tokio::select! {
        // Read before checking for silence: this thread may have been delayed.
        biased;
        () = line.until_over() => return,
        why = read(hub, stream, (link, line), &heard) => why,
        why = write(stream, line) => why,
        why = watch(line, settings, &heard) => why,
    };
    hub.borrow_mut().end(link, why);
}

async fn read<In: LinkMessage, Out, C>(
    hub: &Shared<In, Out, C>,
    stream: &TcpStream,
    (link, line): (LinkId, &Line),
    heard: &Cell<Instant>,
) -> Lost {
    let mut frames = FrameDecoder::new(LINK_MESSAGE_BYTES_MAX);
    loop {
        if let Err(error) = stream.readable().await {
            return Lost::Failed(error.kind());
        }
        let read = INPUT.with_borrow_mut(|input| {
            let bytes = stream.try_read(input)?;
            frames.push(&input[..bytes]);
            Ok::<_, std::io::Error>(bytes)
        });
        match read {
            Ok(0) => return Lost::Closed,
            Ok(_) => heard.set(Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Lost::Failed(error.kind()),
        }
        if let Err(why) = hear(hub, &mut frames, (link, line)) {
            return why;
        }
    }
}

/// Passes the received messages to the handler.
fn hear<In: LinkMessage, Out, C>(
    hub: &Shared<In, Out, C>,
    frames: &mut FrameDecoder,
    (link, line): (LinkId, &Line),
) -> Result<(), Lost> {
    let mut hub = hub.borrow_mut();
    // The handler may end the link at any message.
    while !line.is_over() {
        let Some(payload) = frames.next_payload()? else { break };
        if payload.is_empty() {
            continue;
        }
        let message = In::of_payload(payload)?;
        hub.counts().count(StreamCount::Received);
        hub.tell(LinkEvent::Received { link, message });
    }
    Ok(())
}

async fn write(stream: &TcpStream, line: &Line) -> Lost {
    let stall = Duration::from_millis(LINK_STALL_MS);
    let mut leaving = Vec::new();
    loop {
        line.take(&mut leaving).await;
        let mut rest = leaving.as_slice();
        while !rest.is_empty() {
            match stream.try_write(rest) {
                Ok(bytes) => {
                    rest = &rest[bytes..];
                    line.wrote(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match tokio::time::timeout(stall, stream.writable()).await {
                        Err(_) => return Lost::Stalled,
                        Ok(Err(error)) => return Lost::Failed(error.kind()),
                        Ok(Ok(())) => {}
                    }
                }
                Err(error) => return Lost::Failed(error.kind()),
            }
        }
    }
}

async fn watch(line: &Line, settings: &LinkSettings, heard: &Cell<Instant>) -> Lost {
    let silence = Duration::from_millis(settings.silence_ms);
    let mut heartbeat = tokio::time::interval(Duration::from_millis(settings.ping_ms));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        heartbeat.tick().await;
        if heard.get().elapsed() >= silence {
            return Lost::Silent;
        }
        // Queued messages serve as a keepalive.
        if line.queued_bytes() == 0 {
            line.push(&PING);
        }
    }
}
