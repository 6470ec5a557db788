//! Clients that read at a steady rate, slowly on purpose.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use skep_testclient::{ClientError, RawClient, Response};

/// Number of reads per second.
const READS_PER_S: u64 = 20;

/// A client that reads at a steady rate.
#[derive(Debug)]
pub struct Steady {
    client: RawClient,
    rate_bytes_s: u64,
}

impl Steady {
    /// Requests `target` from `address`, and reads the head of the reply.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn get(address: SocketAddr, target: &str, rate_bytes_s: u64) -> (Self, Response) {
        let mut client = RawClient::connect(address);
        client.ask(target);
        let head = client.try_head().expect("a head");
        (Self { client, rate_bytes_s }, head)
    }

    /// Makes one from a client that has read the head already, and that reads as fast as it can.
    pub fn fast(client: RawClient) -> Self {
        Self { client, rate_bytes_s: u64::MAX }
    }

    /// Reads `bytes` bytes of the body, or fewer if the server closes.
    pub fn read(&mut self, bytes: usize) -> Vec<u8> {
        let began = Instant::now();
        let mut body = self.client.take_buffered(bytes);
        let piece = (self.rate_bytes_s / READS_PER_S).max(1) as usize;
        while body.len() < bytes {
            // The pause paces the client; it waits for no condition.
            let due = Duration::from_secs_f64(body.len() as f64 / self.rate_bytes_s as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
            let wanted = piece.min(bytes - body.len());
            match read_some(self.client.stream(), wanted, &mut body) {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        body
    }

    /// Reads the rest until the connection is closed, at full speed.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        self.client.read_to_close()
    }
}

/// Performs one read of at most `bytes` bytes; false at the end of the stream.
fn read_some(
    mut stream: &TcpStream,
    bytes: usize,
    into: &mut Vec<u8>,
) -> Result<bool, ClientError> {
    // `Vec::resize` goes byte by byte where nothing is optimised.
    let mut piece = vec![0; bytes];
    let read = stream.read(&mut piece);
    into.extend_from_slice(&piece[..*read.as_ref().unwrap_or(&0)]);
    read.map(|n| n > 0).map_err(|error| ClientError::Failed(error.kind()))
}
